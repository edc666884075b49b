package page

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Text of models and of users is shown as it is: it can neither break a table nor bring markup of its own.
func TestForeignTextStaysText(t *testing.T) {
	none := func(string) ([]byte, error) { return nil, errors.New("none") }
	for _, tc := range []struct{ name, markdown, want string }{
		{"escapes", "# a\\_b\n\nx \\*y\\* &lt;b> \\[z\\] \\# 2 * 3, a_b_c, 5 < 6 & 7\n", "<p>x *y* &lt;b&gt; [z] # 2 * 3, a_b_c, 5 &lt; 6 " +
			"&amp; 7</p>"},
		{"a bar in code", "| a | b |\n|---|---:|\n| `x\\|y` | 1 |\n", "<td><code>x|y</code></td>\n<td align=\"right\">1</td>"},
		{"a line break in a cell", "| a |\n|---|\n| x<br>y |\n", "<td>x<br>y</td>"},
		{"raw HTML in a line", "an <img src=x onerror=alert(1)> image\n", "an &lt;img src=x onerror=alert(1)&gt; image"},
		{"a block of raw HTML", "<script>alert(1)</script>\n", "<p>&lt;script&gt;alert(1)&lt;/script&gt;"},
		{"a link to a report", "[a\\_b](c/report.md)\n", "<a href=\"c/report.html\">a_b</a>"},
		{"a link that runs code", "[x](javascript:alert(1))\n", "<a href=\"\">x</a>"},
		{"answers of models", "| text |\n|---|\n| " + TextCell("a | `b` \\ <c> [d](e) **f** \n g", 80) + " |\n",
			"<td><code>a | `b` \\\\ &lt;c&gt; [d](e) **f** \\n g</code></td>"},
		{"plain text in a cell", "| text |\n|---|\n| " + Plain("a | `b` <c> [d](e) **f** _g_") + " |\n",
			"<td>a | `b` &lt;c&gt; [d](e) **f** _g_</td>"},
		{"underscores and brackets", Plain("_a_ __b__ c_d_ (_e_) _ f <g a<b</i> <!-- <?x <https://x.y> 1<2") + "\n",
			"<p>_a_ __b__ c_d_ (_e_) _ f &lt;g a&lt;b&lt;/i&gt; &lt;!-- &lt;?x &lt;https://x.y&gt; 1&lt;2</p>"},
		{"a verdict in a cell", "| v |\n|---|\n| not separable |\n", "<td class=\"word not-separable\">not separable</td>"},
		{"a rough verdict", "| v |\n|---|\n| better † |\n", "<td class=\"word better\">better †</td>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(HTML(tc.markdown, none)); !strings.Contains(got, tc.want) {
				_, body, _ := strings.Cut(got, "<main>")
				t.Errorf("the page shows\n%s\nwant\n%s", body, tc.want)
			}
		})
	}
}

// Plain leaves out the backslashes that Markdown does not need, and no other: all short texts of what it looks at read as they are.
func TestPlainReadsAsItIs(t *testing.T) {
	texts := []string{""}
	for i := 0; i < len(texts) && len(texts[i]) < 5; i++ {
		for _, more := range "_<a ./" {
			texts = append(texts, texts[i]+string(more))
		}
	}
	for _, text := range texts {
		want := strings.Join(strings.Fields(text), " ") + " b_ c"
		if got := PlainText(Markup(Plain(text) + " b_ *c*")); got != want {
			t.Errorf("%q is written %q and read %q", text, Plain(text), got)
		}
	}
	if len(texts) != 9331 { // 6^0 + ... + 6^5
		t.Errorf("%d texts", len(texts))
	}
	texts = []string{""}
	for i := 0; i < len(texts) && len(texts[i]) < 6; i++ { // none opens a link, whatever another text closes
		for _, more := range "[]()a" {
			texts = append(texts, texts[i]+string(more))
		}
	}
	for _, text := range texts {
		if got := PlainText(Markup(Plain(text) + " " + Plain("b](u) ![c") + "](u)")); got != text+" b](u) ![c](u)" {
			t.Errorf("%q is written %q and read %q", text, Plain(text), got)
		}
	}
	// None begins anything but a paragraph.
	for _, text := range []string{"~~~", "- x", "+ x", "1. x", "20) x", "> q", "-- ---", "---", "-", "+", "1.", "-0.5", "1.5 x"} {
		want := "<p>" + strings.ReplaceAll(text, ">", "&gt;") + "</p>\n<p>b</p>\n"
		if got := Fragment(Plain(text) + "\n\nb\n"); got != want {
			t.Errorf("%q is written %q and shown %q", text, Plain(text), got)
		}
	}
	for _, text := range []string{"val_reward 0.3, p < 0.001", "schedule=[rce,grpo] over [1]", "-0.5", "1.5 x"} {
		if got := Plain(text); got != text {
			t.Errorf("got %s", got)
		}
	}
}

// No text leaves its code, whatever backticks are in it.
func TestInlineCodeHoldsItsText(t *testing.T) {
	for _, text := range []string{"a=`b`", "x ``[l](http://e)`` y", "a``b", "`", "```"} {
		if got, want := Fragment(InlineCode(text)), "<p><code>"+text+"</code></p>\n"; got != want {
			t.Errorf("%q is shown %q", text, got)
		}
	}
}

// A narrow page puts the cells of an example below each other, each with its column.
func TestExamplesNameTheColumnOfACell(t *testing.T) {
	const table = "| %s | target | >reward |\n|---|---|---:|\n| why? | `x` | 1 |\n"
	page := Fragment(fmt.Sprintf(table, "question") + "\n" + fmt.Sprintf(table, "policy"))
	for want, n := range map[string]int{`class="table texts"`: 1, `<td data-label="target"><code>x</code></td>`: 1, "<td><code>x</code></td>": 1} {
		if got := strings.Count(page, want); got != n {
			t.Errorf("%d of %s, want %d:\n%s", got, want, n, page)
		}
	}
}
