package gunzip_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"fleetsim/gunzip"
)

func pack(t testing.TB, texts ...string) []byte {
	var out bytes.Buffer
	for _, text := range texts {
		w := gzip.NewWriter(&out)
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return out.Bytes()
}

func unpack(data []byte) (string, error) {
	r, err := gunzip.NewReader(bufio.NewReader(iotest.HalfReader(bytes.NewReader(data))))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	if again, still := r.Read(make([]byte, 1)); err != nil && (again != 0 || still != err) {
		return "", errors.New("an error that does not stay")
	}
	return string(text), err
}

func TestStreamsOneAfterAnother(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	text, err := unpack(pack(t, "a", "", long, "", "b"))
	require.NoError(t, err)
	require.Equal(t, "a"+long+"b", text)
	r, err := gunzip.NewReader(bufio.NewReader(bytes.NewReader(pack(t, "a"))))
	require.NoError(t, err)
	n, err := r.Read(nil)
	require.Zero(t, n)
	require.NoError(t, err, "nothing was asked for")
	text, err = unpack(pack(t, ""))
	require.NoError(t, err)
	require.Empty(t, text)
}

// What follows the streams is something else than a stream that was cut off.
func TestWhatFollows(t *testing.T) {
	whole := pack(t, "some", " text")
	for _, behind := range []string{"x", "\x00", "\x1fx", "some garbage, longer than a header"} {
		text, err := unpack(append(bytes.Clone(whole), behind...))
		require.Equal(t, gunzip.ErrTrailing, err, "%q", behind)
		require.Equal(t, "some text", text)
	}
	first := len(pack(t, "some"))
	for cut := 1; cut < len(whole); cut++ {
		text, err := unpack(whole[:cut])
		if cut == first {
			require.NoError(t, err)
			require.Equal(t, "some", text)
			continue
		}
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", cut)
	}
	_, err := unpack(append(bytes.Clone(whole), 0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9))
	require.ErrorIs(t, err, gzip.ErrHeader)
	damaged := bytes.Clone(whole)
	damaged[first-8] ^= 1
	_, err = unpack(damaged)
	require.ErrorIs(t, err, gzip.ErrChecksum)
}

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{"": false, "\x1f": false, "\x1f\x8b": true, "{}": false} {
		r := bufio.NewReader(strings.NewReader(text))
		require.Equal(t, want, gunzip.Is(r), "%q", text)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, text, string(rest))
	}
}

// What gzip.Reader takes is read the same; what it refuses is refused.
func FuzzReader(f *testing.F) {
	f.Add(pack(f, "a", "b"))
	f.Add(append(pack(f, "a"), 'x'))
	f.Add(append(pack(f, "a"), 0x1f))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := unpack(data)
		want := []byte(nil)
		r, wantErr := gzip.NewReader(bytes.NewReader(data))
		if wantErr == nil {
			want, wantErr = io.ReadAll(r)
		}
		if (err == nil) != (wantErr == nil) || got != string(want) {
			t.Fatalf("got %q, %v; gzip has %q, %v", got, err, want, wantErr)
		}
	})
}
