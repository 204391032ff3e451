package report

import (
	"context"
	"encoding/json"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// probe is a script that says what became of the page, in a real browser: errors,
// what was loaded, the size of every figure, and what the keys do.
const probe = `<script>
const seen = { errors: [], figures: [] };
addEventListener('error', (e) => seen.errors.push(String(e.message)));
addEventListener('securitypolicyviolation', (e) => seen.errors.push('policy: ' + e.blockedURI));
const complain = console.error;
console.error = (...a) => { seen.errors.push(a.join(' ')); complain(...a); };
addEventListener('load', () => {
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const box = svg.getBoundingClientRect();
    seen.figures.push({ width: box.width, height: box.height, parts: svg.querySelectorAll('path,rect,circle,image').length });
  }
  seen.loaded = performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).map((r) => r.name);
  seen.width = innerWidth;
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.paper = getComputedStyle(document.body).backgroundColor;
  const heat = document.querySelector('[data-heat]');
  if (heat) {
    heat.focus();
    heat.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
    seen.readout = heat.querySelector('.readout').textContent;
    seen.cursor = getComputedStyle(heat.querySelector('.cursor')).display;
    heat.blur();
    seen.idle = getComputedStyle(heat.querySelector('.cursor')).display;
  }
  document.getElementById('theme').click();
  seen.other = getComputedStyle(document.body).backgroundColor;
  const out = document.createElement('pre');
  out.id = 'seen';
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
});
</script>`

// browser finds Chromium, or skips the test.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no chromium here; the checks in .ci install it")
	return ""
}

// browse runs the browser without a window or network, and returns what it
// printed.
func browse(t *testing.T, path string, args ...string) (stdout, stderr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	return string(out), errs.String()
}

// The report renders in a real browser, wide and narrow, light and dark: no
// error, nothing loaded, every figure there, nothing wider than the screen, and
// the heatmaps answer to keys.
func TestBrowser(t *testing.T) {
	path := browser(t)
	for _, c := range []struct{ name, text string }{{"plain", grid}, {"extrapolated", wide()}} {
		text := page(t, build(t, c.text))
		file := filepath.Join(t.TempDir(), "report.html")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(text, "<style>", probe+"<style>", 1)), 0o600))
		for _, screen := range []struct {
			name, size, scheme, paper, other string
			width                            float64
		}{
			{"desk", "1280,900", "1", "rgb(253, 253, 251)", "rgb(20, 24, 27)", 1280},
			{"phone, dark", "500,900", "0", "rgb(20, 24, 27)", "rgb(253, 253, 251)", 500},
		} {
			t.Run(c.name+" "+screen.name, func(t *testing.T) {
				dom, log := browse(t, path, "--window-size="+screen.size, "--blink-settings=preferredColorScheme="+screen.scheme, "--dump-dom", "file://"+file)
				require.Empty(t, regexp.MustCompile(`.*:CONSOLE.*`).FindAllString(log, -1), "nothing is said on the console")
				found := regexp.MustCompile(`(?s)<pre id="seen">(.*)</pre>`).FindStringSubmatch(dom)
				require.NotNil(t, found)
				var seen struct {
					Errors, Loaded                              []string
					Figures                                     []struct{ Width, Height, Parts float64 }
					Width, Overflow                             float64
					Paper, Other, Readout, Cursor, Idle, Panels string
				}
				require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(found[1])), &seen))
				require.Empty(t, seen.Errors)
				require.Empty(t, seen.Loaded)
				require.Equal(t, strings.Count(text, `role="img"`), len(seen.Figures))
				for _, f := range seen.Figures {
					require.Greater(t, f.Width, 250.0)
					require.Greater(t, f.Height, 150.0)
					require.GreaterOrEqual(t, f.Parts, 3.0)
				}
				require.Equal(t, screen.width, seen.Width)
				require.LessOrEqual(t, seen.Overflow, 0.0)
				require.Equal(t, screen.paper, seen.Paper)
				require.Equal(t, screen.other, seen.Other)
				require.Contains(t, seen.Readout, "replicas 2, hot 0")
				require.NotEqual(t, "none", seen.Cursor)
				require.Equal(t, "none", seen.Idle)
			})
		}
	}
}

// A screenshot of the report is a picture with many colours, not an empty page.
func TestScreenshot(t *testing.T) {
	path := browser(t)
	dir := t.TempDir()
	file, shot := filepath.Join(dir, "report.html"), filepath.Join(dir, "shot.png")
	require.NoError(t, os.WriteFile(file, []byte(page(t, build(t, grid))), 0o600))
	browse(t, path, "--window-size=1280,3000", "--screenshot="+shot, "file://"+file)
	f, err := os.Open(shot)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	colors := map[any]bool{}
	for y := 0; y < img.Bounds().Dy(); y += 5 {
		for x := 0; x < img.Bounds().Dx(); x += 5 {
			colors[img.At(x, y)] = true
		}
	}
	require.Greater(t, len(colors), 100)
}
