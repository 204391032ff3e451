package metrics

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/sim/record"
)

// However little a spool may hold, a track's events come in order of time, those of
// one time as they were added.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := spool{dir: dir, limit: rapid.IntRange(1, 12).Draw(t, "limit")}
		tracks := make([]track, 3)
		want := make([][]event, len(tracks))
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 14), 0, 60).Draw(t, "events") {
			e := event{at: float64(n / 3), amount: float64(i)}
			s.add(&tracks[n%3], e)
			want[n%3] = append(want[n%3], e)
		}
		for i := range tracks {
			require.Equal(t, len(want[i]) == 0, tracks[i].empty())
			slices.SortStableFunc(want[i], func(a, b event) int { return cmp.Compare(a.at, b.at) })
			c := s.events(&tracks[i])
			for _, e := range want[i] {
				_, early := c.until(math.Nextafter(e.at, -1))
				require.False(t, early)
				got, ok := c.until(e.at)
				require.True(t, ok)
				require.Equal(t, e, got)
			}
			_, more := c.until(math.Inf(1))
			require.False(t, more)
			require.NoError(t, c.err)
		}
		require.NoError(t, s.close())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

// A file that cannot be written or has been cut is an error, not fewer events.
func TestSpoolFails(t *testing.T) {
	x := export(t, []phaseRun{{}}, Options{Step: 1}, 2)
	x.spool.dir += "/nowhere"
	ended := record.Request{Result: record.OK, Started: record.Some(0.0), E2E: record.Some(1.0)}
	for range 4 {
		x.Request(0, &ended)
	}
	require.ErrorIs(t, x.WriteOpenMetrics(nil), os.ErrNotExist)

	x = export(t, []phaseRun{{Requests: []record.Request{ended, ended}}}, Options{Step: 1}, 2)
	defer x.Close()
	require.NoError(t, x.spool.file.Truncate(eventBytes/2))
	require.ErrorContains(t, x.WriteOpenMetrics(nil), "temporary file")
}

// What goes through a file gives the same bytes as what stays in memory.
func TestExportFromFile(t *testing.T) {
	runs := simulate(t, "hot90")
	o := Options{Start: DefaultStart, Step: 0.5, Gap: DefaultGap, Model: "m"}
	want := openMetrics(t, export(t, runs, o, spoolEvents))
	require.Equal(t, want, openMetrics(t, export(t, runs, o, 100)))
}

// A heapMeter discards what is written and notes how much is reachable after the
// first few megabytes of it.
type heapMeter struct{ written, live uint64 }

func (m *heapMeter) Write(p []byte) (int, error) {
	const early = 4 << 20
	if m.written < early && m.written+uint64(len(p)) >= early {
		m.live = live()
	}
	m.written += uint64(len(p))
	return len(p), nil
}

func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An export must hold no more because there are more requests.
func BenchmarkExport(b *testing.B) {
	phase := record.Phase{Phase: "p", Replicas: []record.Replica{{Name: "A"}, {Name: "B"}}}
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			before := live()
			var m heapMeter
			for b.Loop() {
				m = heapMeter{}
				x, err := NewExport([]record.Phase{phase}, Options{Step: 60, Dir: b.TempDir()})
				require.NoError(b, err)
				for i := range n {
					start := float64(i) * 1.25
					x.Request(0, &record.Request{Result: record.OK, Replica: phase.Replicas[i%2].Name, Started: record.Some(start),
						TTFT: record.Some(0.2), TPOT: record.Some(0.05), E2E: record.Some(7.5 + float64(i%7)), OutputTokens: record.Some(128),
						InputTokens: record.Some(518), QueueSeconds: record.Some(0.0)})
				}
				require.NoError(b, x.WriteOpenMetrics(&m))
				require.NoError(b, x.Close())
			}
			requests := float64(b.N) * float64(n)
			b.ReportMetric(float64(m.live-before)/1e6, "held-MB")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/requests, "ns/request")
			b.ReportMetric(float64(m.written)/float64(n), "B-written/request")
			b.ReportMetric(0, "ns/op")
		})
	}
}
