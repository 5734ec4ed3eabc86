package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"conform/harness"
)

// chromium opens a page in a headless browser, or skips where there is none. What the
// browser asks for, or complains of, is noted.
func chromium(t testing.TB, html []byte) *tab {
	t.Helper()
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			binary = path
			break
		}
	}
	if binary == "" {
		t.Skip("chromium is not on this machine (Debian: apt-get install chromium): the HTML page is not looked at")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	require.NoError(t, os.WriteFile(file, html, 0o644))
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.WSURLReadTimeout(time.Minute))
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancelAlloc)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	b := &tab{ctx: ctx, url: (&url.URL{Scheme: "file", Path: file}).String()}
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	b.ctx, cancel = context.WithTimeout(ctx, 6*time.Minute)
	t.Cleanup(cancel)
	return b
}

// tab is a browser's tab.
type tab struct {
	ctx context.Context
	url string

	mu      sync.Mutex
	asked   []string // addresses that the page asked for
	trouble []string // errors, warnings and dialogs
}

func (b *tab) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		if e.Request.URL != b.url && !strings.HasPrefix(e.Request.URL, "data:") {
			b.asked = append(b.asked, e.Request.URL)
		}
	case *log.EventEntryAdded:
		b.trouble = append(b.trouble, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		b.trouble = append(b.trouble, e.ExceptionDetails.Text)
	case *cdppage.EventJavascriptDialogOpening:
		b.trouble = append(b.trouble, "dialog: "+e.Message)
	}
}

func (b *tab) run(t testing.TB, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(b.ctx, actions...))
}

// open loads the page at a width and in a scheme, with all of it laid out.
func (b *tab) open(t testing.TB, width, height int64, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	require.NoError(t, err)
	b.run(t, chromedp.EmulateViewport(width, height), chromedp.Navigate(b.url))
	eval[any](t, b, `document.querySelectorAll("article").forEach(a => a.style.contentVisibility = "visible")`)
}

// eval runs a script in the page.
func eval[T any](t testing.TB, b *tab, script string) T {
	t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(t, err, script[:min(len(script), 200)])
	return out
}

// tipShown says that the details of an event are there to be read.
const tipShown = `!document.getElementById("tip").hidden && document.getElementById("tip").getBoundingClientRect().height > 0`

// until waits for what a script says.
func (b *tab) until(t testing.TB, script string) {
	t.Helper()
	require.Eventually(t, func() bool { return eval[bool](t, b, script) }, 10*time.Second, 20*time.Millisecond, script)
}

// shoot takes a picture of what is seen of the page; where CONFORM_SHOTS names a
// folder, of the whole page, which is kept there.
func (b *tab) shoot(t testing.TB, name string, width int64) {
	t.Helper()
	dir := os.Getenv("CONFORM_SHOTS")
	take := chromedp.CaptureScreenshot()
	if dir != "" {
		take = chromedp.FullScreenshot(100)
	}
	shot, err := chromedp.Run(b.ctx, take)
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	require.EqualValues(t, width, img.Bounds().Dx(), "the page is as wide as its window")
	seen := map[any]bool{}
	for y := range img.Bounds().Dy() / 7 {
		for x := range img.Bounds().Dx() / 7 {
			seen[img.At(7*x, 7*y)] = true
		}
	}
	require.Greater(t, len(seen), 20, "it is no blank sheet")
	if dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644))
	}
}

// layoutFaults lists what lies over something else, or beyond its place.
const layoutFaults = `(() => {
  const out = [], box = e => e.getBoundingClientRect();
  if (document.documentElement.scrollWidth > innerWidth) out.push("the page is " + document.documentElement.scrollWidth + " wide");
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2.5;
  document.querySelectorAll("svg.time, svg.names").forEach(svg => {
    const id = svg.closest("article").id, s = box(svg), texts = [...svg.querySelectorAll("text")].map(e => [e, box(e)]);
    texts.forEach(([e, r], i) => {
      if (r.width < 1) out.push(id + " has an empty label");
      if (r.left < s.left - 1 || r.right > s.right + 1 || r.top < s.top || r.bottom > s.bottom + 1) out.push(id + ": " + e.textContent + " is cut off");
      for (const [f, q] of texts.slice(i + 1)) if (over(r, q)) out.push(id + ": " + e.textContent + " lies over " + f.textContent);
    });
    const marks = [...svg.querySelectorAll(".mark")].map(e => [e, box(e.lastElementChild)]);
    marks.forEach(([e, r], i) => {
      if (r.left < s.left || r.right > s.right || r.top < s.top || r.bottom > s.bottom) out.push(id + ": " + e.id + " is cut off");
      for (const [f, q] of marks.slice(i + 1)) if (over(r, q)) out.push(id + ": " + e.id + " lies over " + f.id);
      for (const [f, q] of texts) if (over(r, q)) out.push(id + ": " + f.textContent + " lies over " + e.id);
    });
  });
  const blocks = [...document.querySelectorAll("article, section, header.top, nav, footer")].filter(e => e.offsetParent !== null || e.tagName !== "ARTICLE").map(e => [e, box(e)]);
  blocks.forEach(([e, r], i) => {
    if (r.left < -1 || r.right > innerWidth + 1) out.push((e.id || e.tagName) + " is wider than the page");
    for (const [f, q] of blocks.slice(i + 1)) if (!e.contains(f) && !f.contains(e) && e.tagName !== "NAV" && f.tagName !== "NAV" && over(r, q)) out.push((e.id || e.tagName) + " lies over " + (f.id || f.tagName));
  });
  document.querySelectorAll(".story, figcaption, .meta, h1, h3, .scope dd, .filters").forEach(e => {
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline") out.push((e.closest("article") || e).id + " " + e.className + ": its text is wider than its place");
  });
  return [...new Set(out)].slice(0, 20);
})()`

func TestPageInChromium(t *testing.T) {
	html := samplePage(t)
	b := chromium(t, html)
	colors := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 400} {
			t.Run(fmt.Sprintf("layout %s %d", scheme, width), func(t *testing.T) {
				b.open(t, width, 900, scheme)
				require.Empty(t, eval[[]string](t, b, layoutFaults))
				require.Greater(t, eval[int](t, b, `document.querySelectorAll("svg.time").length`), 20)
				b.shoot(t, fmt.Sprintf("%s-%d", scheme, width), width)
				colors[scheme] = eval[string](t, b, `getComputedStyle(document.body).backgroundColor`)
				require.Empty(t, eval[[]string](t, b, `(document.querySelector(".mark").setAttribute("transform", "translate(0 0)"),
					document.querySelectorAll("svg.time text")[0].textContent = "x".repeat(900), [])`))
				require.NotEmpty(t, eval[[]string](t, b, layoutFaults), "what is spoiled is found")
			})
		}
	}
	require.NotEqual(t, colors["light"], colors["dark"])
	t.Run("pointer and keyboard", func(t *testing.T) { clickThrough(t, b) })
	t.Run("accessibility", func(t *testing.T) { accessible(t, b) })
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.asked, "the page asks for nothing but itself")
	require.Empty(t, b.trouble, "no error, no dialog, nothing that its policy forbids")
}

// clickThrough does what a reader does.
func clickThrough(t *testing.T, b *tab) {
	b.open(t, 1280, 900, "light")
	count := func(sel string) int { return eval[int](t, b, fmt.Sprintf("document.querySelectorAll(%q).length", sel)) }
	open := func() int { return count("article:not([hidden])") }
	all := open()
	require.Greater(t, all, 20)

	// Filters.
	b.run(t, chromedp.Click(".chip.v-fail"))
	require.Zero(t, count("article.v-fail:not([hidden])"))
	require.Greater(t, open(), 0)
	require.Equal(t, fmt.Sprintf("%d of %d shown", open(), all), eval[string](t, b, `document.getElementById("shown").textContent`))
	failing := eval[string](t, b, `document.querySelector("article.v-fail").id`)
	b.run(t, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", failing)))
	b.until(t, fmt.Sprintf("!document.getElementById(%q).hidden", failing))
	require.Equal(t, all, open(), "a link to a finding that is filtered away shows all")
	eval[any](t, b, `(s => { s.value = "BLK-2"; s.dispatchEvent(new Event("change")); })(document.getElementById("by-rule"))`)
	require.Equal(t, open(), count(`article[data-rule="BLK-2"]`))
	eval[any](t, b, `(s => { s.value = ""; s.dispatchEvent(new Event("change")); })(document.getElementById("by-rule"))`)

	// From the matrix to a finding.
	eval[any](t, b, `document.querySelector(".matrix a").click()`)
	require.True(t, eval[bool](t, b, `document.querySelector("article:target") !== null`))

	// A pointer on an event, and away.
	require.True(t, eval[bool](t, b, `document.getElementById("tip").hidden`))
	eval[any](t, b, `document.querySelector(".mark").scrollIntoView({block: "center", inline: "center"})`)
	eval[any](t, b, `document.activeElement.blur()`)
	time.Sleep(time.Second) // the jump to the finding may still scroll
	at := eval[[]float64](t, b, `(r => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector(".mark").getBoundingClientRect())`)
	b.run(t, chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	b.until(t, tipShown)
	said := eval[string](t, b, `document.querySelector(".mark").getAttribute("aria-label")`)
	require.Contains(t, said, eval[string](t, b, `document.querySelector("#tip b").textContent`))
	require.True(t, eval[bool](t, b, `(r => r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)(document.getElementById("tip").getBoundingClientRect())`))
	b.run(t, chromedp.MouseEvent(chromedp.MouseMoved, 2, 2))
	b.until(t, "!("+tipShown+")")

	// The keyboard: by Tab to a picture, by arrows through it, out with Escape.
	focused := func() string { return eval[string](t, b, `document.activeElement.id`) }
	eval[any](t, b, `[...document.querySelectorAll(".pic")].find(p => p.querySelectorAll(".mark").length > 4).focus()`)
	b.run(t, chromedp.KeyEvent(kb.Tab))
	b.until(t, tipShown)
	first := focused()
	require.True(t, eval[bool](t, b, `document.activeElement.classList.contains("wit")`), "the first is one that proves the finding")
	b.run(t, chromedp.KeyEvent(kb.Home))
	home := focused()
	b.run(t, chromedp.KeyEvent(kb.ArrowRight))
	require.NotEqual(t, home, focused())
	b.run(t, chromedp.KeyEvent(kb.ArrowLeft))
	require.Equal(t, home, focused())
	b.run(t, chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Escape))
	b.until(t, "!("+tipShown+")")
	b.run(t, chromedp.KeyEvent(kb.Tab))
	require.NotContains(t, focused(), strings.TrimRight(first, "0123456789"), "one stop for a picture, not one for each event")

	// An event that a story names leads to its mark.
	ref := eval[string](t, b, `(a => (a.click(), a.getAttribute("href").slice(1)))(document.querySelector("a.ref"))`)
	require.Equal(t, ref, focused())

	// The skip link, and the switch of colours.
	eval[any](t, b, `document.activeElement.blur(), window.scrollTo(0, 0), document.querySelector(".skip").focus()`)
	b.run(t, chromedp.KeyEvent(kb.Enter))
	require.Equal(t, "findings", focused())
	bg := func() string { return eval[string](t, b, `getComputedStyle(document.body).backgroundColor`) }
	light := bg()
	eval[any](t, b, `theme.click(), theme.click()`)
	require.NotEqual(t, light, bg(), "dark, whatever the system says")
	eval[any](t, b, `theme.click()`)
	require.Equal(t, light, bg())
}

// axeVersion is the accessibility checker, an npm package under MPL-2.0, that the test
// takes; axeSum is the digest of its axe.min.js.
const (
	axeVersion = "4.14.1"
	axeSum     = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// accessible asks axe-core, which CONFORM_AXE names (.ci/run fetches it), in both
// colour schemes.
func accessible(t *testing.T, b *tab) {
	path := os.Getenv("CONFORM_AXE")
	if path == "" {
		t.Skip("CONFORM_AXE does not name axe.min.js of axe-core " + axeVersion + ": the page is not checked with it")
	}
	axe, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(axe)
	require.Equal(t, axeSum, hex.EncodeToString(sum[:]), "axe.min.js of axe-core %s", axeVersion)
	const serious = `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
		.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => v.id + " (" + v.impact + "), " + v.nodes.length + " times: " + v.nodes[0].html.slice(0, 200) + ": " + v.nodes[0].failureSummary))`
	for _, scheme := range []string{"light", "dark"} {
		b.open(t, 1280, 900, scheme)
		eval[any](t, b, string(axe)+"; 0")
		require.Empty(t, eval[[]string](t, b, serious), scheme)
	}
	eval[any](t, b, `document.querySelector("#by-rule").parentNode.replaceWith(document.querySelector("#by-rule"))`)
	require.NotEmpty(t, eval[[]string](t, b, serious), "a field without a name is found")
}

// BenchmarkPage opens the page of the largest built-in run: every scenario in every
// mode, with the defect that has the most findings. ms-open is until the page has
// loaded, been scrolled to its end and painted there.
func BenchmarkPage(b *testing.B) {
	res, err := harness.Run(context.Background(), harness.Config{Defect: "free-at-cancel", OutDir: b.TempDir()})
	require.NoError(b, err)
	events := 0
	for i := range res.Scenarios {
		events += res.Scenarios[i].Stats.Events
	}
	html := pageOf(b, res)
	browser := chromium(b, html)
	browser.run(b, chromedp.EmulateViewport(1280, 900), chromedp.Navigate("about:blank"))
	for b.Loop() {
		browser.run(b, chromedp.Navigate(browser.url))
		require.Positive(b, eval[float64](b, browser, `new Promise(done => {
			scrollTo({top: document.documentElement.scrollHeight, behavior: "instant"});
			requestAnimationFrame(() => requestAnimationFrame(() => done(scrollY)));
		})`))
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms-open")
	b.ReportMetric(float64(len(html)), "bytes")
	b.ReportMetric(float64(events), "events")
}
