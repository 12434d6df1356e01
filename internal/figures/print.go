package figures

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes a table, with the goals if there are any.
func Print(out io.Writer, all []Figure) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	goals := len(all) > 0 && all[0].Goal != ""
	heading := []string{"figure", "what", "value (low – high)", "against", "baseline", "ratio (low – high)"}
	if goals {
		heading = append(heading, "goal")
	}
	fmt.Fprintln(w, strings.Join(heading, "\t"))
	for _, f := range all {
		row := []string{f.ID, f.What, spread(number, f.Value, f.Low, f.High) + " " + f.Unit, "", "", ""}
		if f.Against != "" {
			row = append(row[:3], f.Against, number(f.Baseline), spread(ratio, f.Ratio, f.RatioLow, f.RatioHi))
		}
		if goals {
			row = append(row, f.Goal+map[bool]string{true: " missed"}[f.Missed])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// number has three digits at least, and no exponent.
func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func ratio(x float64) string { return fmt.Sprintf("%.2f", x) }

// spread leaves out what one round cannot have.
func spread(text func(float64) string, median, low, high float64) string {
	if low == high {
		return text(median)
	}
	return fmt.Sprintf("%s (%s – %s)", text(median), text(low), text(high))
}
