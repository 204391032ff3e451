package record

import (
	"errors"
	"fmt"
	"io"
	"iter"
)

const (
	maxRequestLine = 1 << 20  // bytes; a record has a few hundred
	maxPhaseLine   = 64 << 20 // bytes; a timeline in it can be long
	maxProblems    = 100      // listed of one input; the rest are counted
)

// Requests reads request records from r, JSON lines, plain or gzip; name stands
// for r in messages. A byte order mark, CRLF line ends, blank lines and unknown
// members are taken. A line that is wrong yields an error, one LineError for each
// problem on it joined, and the reading goes on behind it; where the input itself
// breaks the error is the last.
//
// A record without a result gets the one that its status and tokens show.
func Requests(name string, r io.Reader) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		in := newLines(name, r, maxRequestLine)
		var p parser
		for {
			line, err := in.next()
			if err == io.EOF {
				return
			}
			var req Request
			if err == nil {
				req, err = p.request(line, in)
			}
			if !yield(req, err) || err != nil && err == in.err {
				return
			}
		}
	}
}

// ReadRequests reads all records that Requests yields. With an error it returns
// the good records too; the error lists every problem, up to a hundred.
func ReadRequests(name string, r io.Reader) ([]Request, error) {
	var reqs []Request
	err := EachRequest(name, r, func(req *Request) { reqs = append(reqs, *req) })
	return reqs, err
}

// EachRequest calls f with the records that ReadRequests returns, one after the
// other, and fails as it does.
func EachRequest(name string, r io.Reader, f func(*Request)) error {
	var problems problemList
	for req, err := range Requests(name, r) {
		if err != nil {
			problems.add(err)
			continue
		}
		f(&req)
	}
	return problems.err(name)
}

// request parses one line.
func (p *parser) request(line []byte, in *lines) (Request, error) {
	p.problems = p.problems[:0]
	var r Request
	if err := checkObject(line); err != nil {
		p.problems = append(p.problems, err)
	} else {
		p.read.clear()
		p.members(line, func(name string, value []byte) {
			if p.requestMember(&r, name, value) && !p.read.add(name) {
				p.complain(name, isTwice)
			}
		})
		p.settleResult(&r)
	}
	if len(p.problems) > 0 {
		return Request{}, p.at(in)
	}
	return r, nil
}

// requestMember takes a member of the schema; it reports whether it is one.
func (p *parser) requestMember(r *Request, name string, value []byte) bool {
	switch name {
	case "phase":
		r.Phase = p.text(name, value)
	case "tenant":
		r.Tenant = p.text(name, value)
	case "result":
		r.Result = p.text(name, value)
	case "http_status":
		r.HTTPStatus = p.int(name, value, 999)
	case "ttft":
		r.TTFT = p.float(name, value)
	case "tpot":
		r.TPOT = p.float(name, value)
	case "e2e":
		r.E2E = p.float(name, value)
	case "input_tokens":
		r.InputTokens = p.count(name, value)
	case "output_tokens":
		r.OutputTokens = p.count(name, value)
	case "requested_output":
		r.RequestedOutput = p.count(name, value)
	case "good":
		r.Good = p.bool(name, value)
	case "started_relative_seconds":
		r.Started = p.float(name, value)
	case "replica":
		r.Replica = p.text(name, value)
	case "family":
		r.Family = p.family(name, value)
	case "index":
		r.Index = p.count(name, value)
	case "cached_tokens":
		r.CachedTokens = p.count(name, value)
	case "queue_seconds":
		r.QueueSeconds = p.float(name, value)
	case "error_category":
		r.ErrorCategory = p.text(name, value)
	case "match_percent":
		r.MatchPercent = p.int(name, value, 100)
	case "selection":
		r.Selection = p.text(name, value)
	case "imbalanced":
		r.Imbalanced = p.bool(name, value)
	default:
		return false
	}
	return true
}

// family takes a number, or a string of digits as the phase records name them.
func (p *parser) family(name string, value []byte) Int {
	if len(value) > 2 && value[0] == '"' {
		value = value[1 : len(value)-1]
		for _, c := range value {
			if c < '0' || c > '9' {
				p.complain(name, "%q; allowed is a number from 0, or null", clip(value))
				return Int{}
			}
		}
	}
	return p.count(name, value)
}

// settleResult gives a record without a result the one its status and tokens
// show, by the studies' rule that HTTP 200 alone is no success.
func (p *parser) settleResult(r *Request) {
	if r.Result != "" || len(p.problems) > 0 {
		return
	}
	status, answered := r.HTTPStatus.Get()
	if !answered {
		p.problems = append(p.problems, errors.New("neither result nor http_status: not a request record"))
		return
	}
	why := ""
	switch {
	case status == 429:
		r.Result = Rejected
	case status != 200:
		r.Result = Error
	case r.tokensWrong() != "":
		r.Result, why = Failed, r.tokensWrong()
	default:
		r.Result = OK
	}
	if r.ErrorCategory == "" {
		r.ErrorCategory = why
	}
}

// at joins the problems found, each with its place.
func (p *parser) at(in *lines) error {
	located := make([]error, len(p.problems))
	for i, err := range p.problems {
		located[i] = in.problem("%v", err)
	}
	return errors.Join(located...)
}

// problemList collects errors, joined ones one by one, and counts those beyond
// maxProblems.
type problemList struct {
	listed []error
	more   int
}

func (l *problemList) add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			l.add(e)
		}
		return
	}
	if len(l.listed) == maxProblems {
		l.more++
		return
	}
	l.listed = append(l.listed, err)
}

// err is nil without problems.
func (l *problemList) err(name string) error {
	if l.more > 0 {
		return errors.Join(append(l.listed, fmt.Errorf("%s: and %d more problems", name, l.more))...)
	}
	return errors.Join(l.listed...)
}
