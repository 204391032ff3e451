package trace

var recordsFormat = &format{
	name:     "records",
	title:    "request records of this program or of the production study, JSONL",
	unit:     Seconds,
	window:   logWindow,
	required: []string{"result", "ttft|e2e|started_relative_seconds"},
	record:   requestRecord,
}

// requestRecord reads a request record; fields it does not know are passed over.
func requestRecord(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	var result, category string
	var output Optional[int]
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "phase":
			err = c.textInto(&row.Phase)
		case "tenant":
			err = c.textInto(&row.Tenant)
		case "result":
			err = c.textInto(&result)
		case "http_status":
			err = c.countInto(&row.HTTPStatus)
		case "ttft":
			err = c.spanInto(&row.TTFT, Seconds)
		case "tpot":
			err = c.spanInto(&row.TPOT, Seconds)
		case "e2e":
			err = c.spanInto(&row.E2E, Seconds)
		case "input_tokens":
			err = c.countInto(&row.InputTokens)
		case "output_tokens":
			output, err = c.count()
		case "requested_output":
			err = c.countInto(&row.RequestedOutput)
		case "cached_tokens":
			row.CachedTokens, err = c.count()
		case "good":
			if !c.null() {
				row.Good.Present = true
				row.Good.Value, err = c.flag()
			}
		case "started_relative_seconds":
			err = r.arrival(c, p)
		case "replica":
			err = c.textInto(&row.Replica)
		case "family":
			err = c.textInto(&row.Family)
		case "index":
			err = c.textInto(&row.ID)
		case "error_category":
			err = c.textInto(&category)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	row.OutputTokens = output.Value
	if row.Family == "-1" {
		row.Family = ""
	}
	switch {
	case result == "ok":
		row.ended(p, output.Present)
	case result == "dropped":
		row.Status = Dropped
	case result == "rejected":
		row.HTTPStatus = 429
		fallthrough
	default:
		row.fail(category)
		if category == "" {
			row.Error = result
		}
	}
	return nil
}
