package main

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// asKeyboard makes a key event one of a real keyboard: if a page handles it, no character is typed.
func asKeyboard(e *input.DispatchKeyEventParams) {
	if e.Type == kb.KeyDown {
		e.Type = kb.KeyRawDown
	}
}

func TestBrowser_TheDocumentationFitsOnAPhoneAndIsDarkAndSearchedWithTheKeyboard(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needs.Program(t, "chromium")
	dir := t.TempDir()
	if _, err := command(t, "docs", "--output", dir); err != nil {
		t.Fatal(err)
	}
	server := start(t, "docs", "--listen", "127.0.0.1:0").url + "/"
	v := &visitor{t, newBrowser(t), server}
	open := func(page string) {
		t.Helper()
		v.do("open "+page, chromedp.Navigate(page), chromedp.WaitVisible(chromedp.CSS("article h1")))
	}
	const ground = `getComputedStyle(document.body).backgroundColor`
	v.do("hold a phone", chromedp.EmulateViewport(390, 800))
	v.media("light")
	open(server)
	light := get(v, "read the color", chromedp.Evaluate[string](ground))
	v.media("dark")
	if dark := get(v, "read the color", chromedp.Evaluate[string](ground)); dark == light || dark != "rgb(15, 18, 24)" {
		t.Errorf("the page is %s in the light and %s in the dark", light, dark)
	}
	pages := strings.Fields(get(v, "read the navigation", chromedp.Evaluate[string](`[...document.querySelectorAll("#site-pages a")].map((a) => a.href).join(" ")`)))
	if len(pages) < 25 {
		t.Errorf("the navigation has the pages %q", pages)
	}
	for _, page := range append(pages, server) {
		open(page)
		for _, width := range []int64{1400, 1000, 390} {
			v.do("size the window", chromedp.EmulateViewport(width, 800))
			if wide := get(v, "measure", chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
				t.Errorf("%s is %d pixels wide in a window of %d", page, wide, width)
			}
		}
		if broken := get(v, "look at the images", chromedp.Evaluate[int](`[...document.images].filter((i) => i.complete && i.naturalWidth === 0).length`)); broken > 0 {
			t.Errorf("%s has %d images that are not shown", page, broken)
		}
	}
	v.do("open the menu", chromedp.Click(chromedp.CSS(`header .menu`)), chromedp.WaitVisible(chromedp.CSS(`#site-pages a[href="faq.html"]`)))
	v.do("choose a page", chromedp.Click(chromedp.CSS(`#site-pages a[href="faq.html"]`)), chromedp.WaitVisible(chromedp.CSS("h1#questions-and-answers")))

	for _, where := range []string{server, "file://" + dir + "/"} {
		open(where + "api/orders.html")
		v.do("press /", chromedp.KeyEvent("/", asKeyboard))
		v.do("type", chromedp.KeyEvent("outcome_unknown"))
		const results = `[...document.querySelectorAll("#site-results a")]`
		v.until("the first result is the section with this heading", results+`[0]?.getAttribute("href") === "../problems.html#outcome_unknown"`)
		if typed := get(v, "read the field", chromedp.Evaluate[string](`document.querySelector("#site-query").value`)); typed != "outcome_unknown" {
			t.Errorf("the field has %q", typed)
		}
		v.do("press Escape", chromedp.KeyEvent(kb.Escape))
		v.until("the results are closed", `document.querySelector("#site-results").hidden`)
		v.do("go on typing", chromedp.KeyEvent(" operator alert"))
		v.until("there are fewer results, which have all words", results+`.length > 0 && `+results+`.every((a) => a.querySelector("mark"))`)
		v.do("go down and back", chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowUp))
		v.until("the field has the focus", `document.activeElement.id === "site-query"`)
		v.do("go down and choose", chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("h3#outcome_unknown")))
		if at := get(v, "read the address", chromedp.Location()); at != where+"problems.html#outcome_unknown" {
			t.Errorf("the result leads to %s", at)
		}
	}
}
