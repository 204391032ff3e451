package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrNotLoopback is returned for a host that is not this machine when traffic
// to others has not been allowed.
var ErrNotLoopback = errors.New("the address is not on this machine")

// A Transport is an HTTP client for measuring: it has no limit on connections
// that a queue could hide behind, follows no redirect, uses no proxy and asks
// for no compression, which would hold back the pieces of a stream.
type Transport struct {
	client *http.Client
	opened atomic.Int64
}

// NewTransport returns a client that connects within the timeout, and to other
// machines only if anywhere is set.
func NewTransport(connect time.Duration, anywhere bool) *Transport {
	t := &Transport{}
	dialer := &net.Dialer{Timeout: connect, Control: func(_, address string, _ syscall.RawConn) error {
		if !anywhere && !isLoopback(address) {
			return fmt.Errorf("%s: %w", address, ErrNotLoopback)
		}
		return nil
	}}
	t.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, address)
				if err == nil {
					t.opened.Add(1)
				}
				return c, err
			},
			TLSHandshakeTimeout:    connect,
			DisableCompression:     true,
			MaxConnsPerHost:        0,       // none
			MaxIdleConns:           0,       // no limit
			MaxIdleConnsPerHost:    1 << 20, // 0 would be 2
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t
}

// isLoopback reports whether an address with a port is on this machine's
// loopback interface. It is asked after names have been resolved.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// IsLoopbackHost reports whether a host name or address means this machine,
// without asking anyone.
func IsLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Opened is the number of connections opened so far.
func (t *Transport) Opened() int { return int(t.opened.Load()) }

// Close closes the connections that are idle.
func (t *Transport) Close() { t.client.CloseIdleConnections() }
