package trace

import (
	"strings"

	"fleetsim/simtime"
)

var azureFormat = &format{
	name:     "azure",
	title:    "Azure LLM inference trace (2023, 2024 and later), CSV",
	unit:     Seconds,
	absolute: true,
	window:   traceWindow,
	required: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
	optional: []string{"NumImages"},
	fields:   azureFields,
}

func azureFields(r *Reader, t *table) error {
	p := r.stage(t.line)
	if s := t.get("TIMESTAMP"); s != nil {
		at, err := parseDate(s)
		if err != nil {
			return t.errorf("TIMESTAMP", "%.40q %v", s, err)
		}
		p.at = Some(at)
	}
	images := 0
	err := t.counts(map[string]*int{
		"ContextTokens":   &p.row.InputTokens,
		"GeneratedTokens": &p.row.OutputTokens,
		"NumImages":       &images,
	})
	if images > 0 {
		r.report.note("with images, which are not in the prompt's length")
	}
	return err
}

var burstGPTFormat = &format{
	name:     "burstgpt",
	title:    "BurstGPT trace, CSV",
	unit:     Seconds,
	absolute: true,
	window:   traceWindow,
	required: []string{"Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"},
	optional: []string{"Session ID", "Elapsed time"},
	fields:   burstGPTFields,
}

// burstGPTFields reads a row. No response tokens mark a failed request.
func burstGPTFields(r *Reader, t *table) (err error) {
	p := r.stage(t.line)
	row := &p.row
	if p.at, err = t.instant("Timestamp", r.opts.TimeUnit); err != nil {
		return err
	}
	if row.E2E, err = t.span("Elapsed time", Seconds); err != nil {
		return err
	}
	if err := t.counts(map[string]*int{
		"Request tokens":  &row.InputTokens,
		"Response tokens": &row.OutputTokens,
	}); err != nil {
		return err
	}
	row.Model, row.Kind, row.Session = t.text("Model"), t.text("Log Type"), t.text("Session ID")
	row.Status = OK
	if row.OutputTokens == 0 {
		row.Status = Failed
	}
	return nil
}

var vidurFormat = &format{
	name:     "vidur",
	title:    "Vidur trace, CSV",
	unit:     Seconds,
	window:   traceWindow,
	required: []string{"arrived_at", "num_prefill_tokens", "num_decode_tokens"},
	fields:   vidurFields,
}

func vidurFields(r *Reader, t *table) (err error) {
	p := r.stage(t.line)
	if p.at, err = t.instant("arrived_at", r.opts.TimeUnit); err != nil {
		return err
	}
	return t.counts(map[string]*int{
		"num_prefill_tokens": &p.row.InputTokens,
		"num_decode_tokens":  &p.row.OutputTokens,
	})
}

var blisFormat = &format{
	name:   "blis",
	title:  "BLIS trace v2 (inference-sim), the CSV beside its header",
	unit:   Microseconds,
	window: logWindow,
	required: []string{"request_id", "input_tokens", "output_tokens", "arrival_time_us",
		"send_time_us", "first_chunk_time_us", "last_chunk_time_us", "status"},
	optional: []string{"tenant_id", "session_id", "round_index", "prefix_group", "prefix_length", "streaming", "model",
		"server_input_tokens", "error_message", "think_time_us", "slo_class"},
	fields: blisFields,
}

// blisFields reads a row. Its input_tokens come behind the group's prefix; its
// arrival counts from 0, the times of the answer from the Unix epoch.
func blisFields(r *Reader, t *table) (err error) {
	p := r.stage(t.line)
	row := &p.row
	if p.at, err = t.instant("arrival_time_us", r.opts.TimeUnit); err != nil {
		return err
	}
	round := 0
	if err := t.counts(map[string]*int{
		"input_tokens":        &row.InputTokens,
		"output_tokens":       &row.OutputTokens,
		"prefix_length":       &row.FamilyTokens,
		"server_input_tokens": &row.ServerInputTokens,
		"round_index":         &round,
	}); err != nil {
		return err
	}
	var sent, first, last Optional[instant]
	for _, moment := range []struct {
		column string
		at     *Optional[instant]
	}{{"send_time_us", &sent}, {"first_chunk_time_us", &first}, {"last_chunk_time_us", &last}} {
		if *moment.at, err = t.instant(moment.column, Microseconds); err != nil {
			return err
		}
		moment.at.Present = moment.at.Value != instant{} // 0: it did not happen
	}
	if row.Think, err = t.span("think_time_us", Microseconds); err != nil {
		return err
	}
	row.ID, row.Tenant, row.Session = t.text("request_id"), t.text("tenant_id"), t.text("session_id")
	row.Model, row.Kind = t.text("model"), t.text("slo_class")
	if row.Session != "" {
		row.Turn = turnOf(round)
	}
	if round == 0 {
		row.Think = Optional[simtime.Time]{} // nothing to think about yet
	}
	if row.Family = t.text("prefix_group"); row.Family != "" {
		if row.InputTokens += row.FamilyTokens; row.InputTokens > maxTokens {
			return t.errorf("prefix_length", "%d with input_tokens is above %d", row.FamilyTokens, maxTokens)
		}
	} else {
		row.FamilyTokens = 0
	}
	row.E2E = timeSpan(sent, last)
	if !strings.EqualFold(t.text("streaming"), "false") {
		row.TTFT = timeSpan(sent, first)
		row.setTPOT(first, last)
	}
	switch status := t.text("status"); {
	case status != "ok" && status != "":
		row.fail(t.text("error_message"))
	case row.E2E.Present:
		row.Status = OK
	}
	return nil
}

// setTPOT sets the time per output token from the first and last token's times;
// an answer of one token has none.
func (row *Row) setTPOT(first, last Optional[instant]) {
	if d := timeSpan(first, last); d.Present {
		row.setTPOTOf(d.Value)
	}
}
