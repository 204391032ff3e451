package report

import (
	_ "embed" // the page's template, style and script
	"html/template"
	"io"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// WriteHTML writes the report as one HTML file. It loads nothing: style, script
// and figures are inside, and its content policy forbids the network.
func (r *Report) WriteHTML(w io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"svg": svg,
		"heat": func(p Panel) *Heatmap {
			h, _ := p.(*Heatmap)
			return h
		},
		"json": func(h *Heatmap) (template.JS, error) {
			s, err := h.data()
			return template.JS(s), err
		},
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(w, struct {
		*Report
		Style  template.CSS
		Script template.JS
	}{r, template.CSS(pageStyle), template.JS(pageScript)})
}
