package wire

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"conform/faults"
)

// routePath is where the bootstrap server tells where ranks listen.
const routePath = "/route"

// sizes are the prefill's own, which it numbers its ranks by.
type sizes struct{ context, pipeline int64 }

// request says between whom a request to the bootstrap server is. It keeps its
// name: "GET /health" is decode's heartbeat.
func (s *side) request(*http.Request, []byte) faults.Point {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	return faults.Point{From: s.i.ids[s.decode], To: s.i.ids[s.i.opt.Prefill]}
}

// answer leads decode's sockets through the interposer: where the bootstrap
// server names a rank's socket, it names a proxy before it. All else stays.
func (s *side) answer(r *http.Request, status int, _ http.Header, body []byte) []byte {
	if r.Method != http.MethodGet || r.URL.Path != routePath || status != http.StatusOK {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil
	}
	raw, names := fields["rank_port"]
	if !names {
		s.i.learn(fields)
		return nil
	}
	altered, err := s.reroute(r.URL.Query(), fields, raw)
	if err != nil {
		s.i.mu.Lock()
		defer s.i.mu.Unlock()
		s.i.unknown.Note(Unknown{Where: "bootstrap", Tag: "GET " + routePath, Why: "the rank is not interposed: " + err.Error()})
		return nil
	}
	return altered
}

// reroute changes rank_ip and rank_port, which keeps its type, and no other key.
func (s *side) reroute(query url.Values, fields map[string]json.RawMessage, raw json.RawMessage) ([]byte, error) {
	var ip string
	if err := json.Unmarshal(fields["rank_ip"], &ip); err != nil || ip == "" {
		return nil, fmt.Errorf("rank_ip is %.40q", fields["rank_ip"])
	}
	port, isString := string(raw), false
	if json.Unmarshal(raw, &port) == nil {
		isString = true
	}
	if n, err := small([]byte(port)); err != nil || n < 1 || n > 65535 {
		return nil, fmt.Errorf("rank_port is %.40q", raw)
	}
	addr, err := s.toRank(net.JoinHostPort(ip, port), s.i.rankOf(query))
	if err != nil {
		return nil, err
	}
	host, ours, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	fields["rank_ip"], fields["rank_port"] = json.RawMessage(strconv.Quote(host)), json.RawMessage(ours)
	if isString {
		fields["rank_port"] = json.RawMessage(strconv.Quote(ours))
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	return body, nil
}

// learn takes in how many ranks prefill has of each kind.
func (i *Interposer) learn(fields map[string]json.RawMessage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, into := range map[string]*int64{"attn_cp_size": &i.sizes.context, "pp_size": &i.sizes.pipeline} {
		if n, err := small(fields[name]); err == nil && n >= 1 {
			*into = n
		}
	}
}

// rankOf is the number by which prefill's acknowledgements and statuses will
// name the rank that was asked for; -1 if the question does not say.
func (i *Interposer) rankOf(query url.Values) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ranks [3]int64
	for at, name := range []string{"target_tp_rank", "target_pp_rank", "prefill_cp_rank"} {
		n, err := small([]byte(query.Get(name)))
		if err != nil || n > 1<<20 {
			return -1
		}
		ranks[at] = n
	}
	return ranks[0]*i.sizes.pipeline*i.sizes.context + ranks[1]*i.sizes.context + ranks[2]
}
