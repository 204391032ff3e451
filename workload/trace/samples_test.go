package trace

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestX(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/samples/*/*.*")
	files = append(files, "../../../shared/measurements/production-requests.jsonl")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		r, err := Open(filepath.Base(f), bytes.NewReader(b), Options{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		n := 0
		for {
			row, err := r.Next()
			if err != nil {
				if err != io.EOF {
					fmt.Println("ERR", err)
				}
				break
			}
			if n < 4 {
				row.HashIDs = row.HashIDs[:min(3, len(row.HashIDs))]
				fmt.Printf("%+v\n", row)
			}
			n++
		}
		fmt.Println(r.Report())
	}
}
