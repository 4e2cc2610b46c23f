package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth   = 760
	panelHeight = 400
	plotLeft    = 74
	plotRight   = 24
	plotTop     = 74 // of a panel: its title and the names of its lines stand above
	plotBottom  = 56
)

// The colours, on light and on dark, tell lines apart for people who do not see all colours too; so do the dashes.
const plotStyle = `
  svg { color-scheme: light dark } text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1c2128 }
  .paper { fill: #ffffff } .axis { fill: #57606a } .title { font-size: 15px; font-weight: 600 } .grid { stroke: #d8dee4 }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .s0 { stroke: #0b61c4 } .s1 { stroke: #c2410c; stroke-dasharray: 7 3 }
  .s2 { stroke: #1a7f37; stroke-dasharray: 2 3 } .s3 { stroke: #8250df; stroke-dasharray: 9 3 2 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .paper { fill: #0d1117 } .axis { fill: #9198a1 } .grid { stroke: #2d333b }
    .s0 { stroke: #6cb1ff } .s1 { stroke: #ff9a62 } .s2 { stroke: #56d364 } .s3 { stroke: #c8a2ff }
  }
`

// WriteSVG plots, for each result, how long the slowest requests took: the share of requests to the right, spread so that
// each nine has the same width, and the latency upwards, in a logarithmic scale.
func (r *Report) WriteSVG(w io.Writer) error {
	var b strings.Builder
	height := panelHeight * max(len(r.Results), 1)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, "<title>Latency of memcached requests</title>\n<style>%s</style>\n", plotStyle)
	fmt.Fprintf(&b, `<rect class="paper" width="%d" height="%d"/>`+"\n", plotWidth, height)
	for i := range r.Results {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*panelHeight)
		newPanel(&r.Results[i]).write(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// panel is the plot of one result.
type panel struct {
	res         *Result
	nines       float64 // the horizontal range: shares up to 1-10^-nines
	floor, roof float64 // the vertical range in microseconds
}

func newPanel(res *Result) *panel {
	p := &panel{res: res, nines: 1, floor: math.Inf(1)}
	for i := range res.Targets {
		d := res.Targets[i].Distribution
		if len(d) == 0 {
			continue
		}
		p.nines = max(p.nines, deepest(d))
		p.floor = min(p.floor, max(d[0].Microseconds, 0.01))
		p.roof = max(p.roof, d[len(d)-1].Microseconds)
	}
	if p.floor > p.roof {
		p.floor, p.roof = 1, 10
	}
	p.floor, p.roof = roundTo(p.floor, false), roundTo(p.roof*1.05, true)
	return p
}

// deepest is the nines of the last share below 1, and a little more for the step to the slowest request.
func deepest(d []Point) float64 {
	if len(d) < 2 {
		return 1
	}
	return nines(d[len(d)-2].Share) + 0.3
}

// nines is 1 for a share of 0.9, 2 for 0.99, and so on.
func nines(share float64) float64 { return -math.Log10(max(1-share, 1e-12)) }

// roundTo gives the nearest number of the form 1, 2 or 5 times a power of ten that is not above v, or not below.
func roundTo(v float64, up bool) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	best := p
	for _, m := range []float64{1, 2, 5, 10} {
		if !up && m*p <= v*(1+1e-9) {
			best = m * p
		}
		if up && m*p >= v*(1-1e-9) {
			return m * p
		}
	}
	return best
}

func (p *panel) x(n float64) float64 {
	return plotLeft + min(n/p.nines, 1)*(plotWidth-plotLeft-plotRight)
}

func (p *panel) y(us float64) float64 {
	share := math.Log(max(us, p.floor)/p.floor) / math.Log(p.roof/p.floor)
	return panelHeight - plotBottom - share*(panelHeight-plotTop-plotBottom)
}

func (p *panel) write(b *strings.Builder) {
	text := func(x, y float64, attributes, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
	}
	line := func(class string, x1, y1, x2, y2 float64) {
		fmt.Fprintf(b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
	}
	bottom, right := float64(panelHeight-plotBottom), float64(plotWidth-plotRight)
	text(plotLeft, 24, `class="title"`, p.res.Spec.Title())

	for _, us := range ticks(p.floor, p.roof) {
		line("grid", plotLeft, p.y(us), right, p.y(us))
		text(plotLeft-8, p.y(us)+4, `class="axis" text-anchor="end"`, durationText(us))
	}
	for _, t := range []struct {
		n     float64
		label string
	}{{0, "0"}, {nines(0.5), "50%"}, {1, "90%"}, {2, "99%"}, {3, "99.9%"}, {4, "99.99%"}, {5, "99.999%"}, {6, "99.9999%"}, {7, "99.99999%"}} {
		if t.n <= p.nines {
			line("grid", p.x(t.n), plotTop, p.x(t.n), bottom)
			text(p.x(t.n), bottom+18, `class="axis" text-anchor="middle"`, t.label)
		}
	}
	text((plotLeft+right)/2, panelHeight-14, `class="axis" text-anchor="middle"`, "share of the requests that took at most so long")
	fmt.Fprintf(b, `<text class="axis" text-anchor="middle" transform="translate(18 %.1f) rotate(-90)">latency (logarithmic)</text>`+"\n", (plotTop+bottom)/2)

	x := float64(plotLeft)
	for i := range p.res.Targets {
		t := &p.res.Targets[i]
		class := fmt.Sprintf("line s%d", i%4)
		line(class, x, 45, x+26, 45)
		label := fmt.Sprintf("%s (p99 %s)", t.Address, durationText(t.Median.Latency.P99))
		text(x+32, 49, "", label)
		x += 32 + float64(len(label))*7.2 + 22
		fmt.Fprintf(b, `<path class="%s" d="%s"><title>%s</title></path>`+"\n", class, p.path(t.Distribution), html.EscapeString(t.Address))
	}
}

// path draws a distribution: flat until the share is passed, then up.
func (p *panel) path(d []Point) string {
	var b strings.Builder
	before := 0.0
	for i, point := range d {
		command := "L"
		if i == 0 {
			command = "M"
		}
		at := min(nines(point.Share), p.nines)
		fmt.Fprintf(&b, "%s%.1f %.1fL%.1f %.1f", command, p.x(before), p.y(point.Microseconds), p.x(at), p.y(point.Microseconds))
		before = at
	}
	return b.String()
}

// ticks are the marks between two latencies: every power of ten, and 2 and 5 times it while there are few.
func ticks(from, to float64) []float64 {
	factors := []float64{1, 2, 5}
	if to/from > 2e4 {
		factors = factors[:1]
	}
	var list []float64
	for p := math.Pow(10, math.Floor(math.Log10(from))); p <= to*1.001; p *= 10 {
		for _, f := range factors {
			if v := p * f; v >= from*0.999 && v <= to*1.001 {
				list = append(list, v)
			}
		}
	}
	return list
}

// durationText writes microseconds in the unit that people would use.
func durationText(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	case us >= 1:
		return fmt.Sprintf("%.3g us", us)
	}
	return fmt.Sprintf("%.3g ns", us*1e3)
}
