package sglang

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
	"conform/spec"
)

// placed is what selfcheck.py prints of one table of hooks.
type placed struct {
	Asked   int                      `json:"asked"`
	Bound   int                      `json:"bound"`
	Missing map[spec.RuleID][]string `json:"missing"`
	Places  []string                 `json:"places"`
}

// Every hook finds its place in each installed build; in one that has renamed a
// function, the rules that need it are named. NIXL before 0.5.21 told of completion
// where no hook can hear it, and says so.
func TestHooksBindInInstalledEngines(t *testing.T) {
	if testing.Short() {
		t.Skip("imports whole engines")
	}
	for _, c := range []struct{ version, connector string }{{"0.5.18", Mooncake}, {"0.5.20", Mooncake}, {"0.5.23", Mooncake}, {"0.5.23", NIXL}} {
		t.Run(c.version+"/"+c.connector, func(t *testing.T) {
			env, err := engines.Find(t.Context(), "sglang@"+c.version, engines.CPU)
			if err != nil {
				t.Skip(err)
			}
			front, err := probe.Unpack(t.TempDir())
			require.NoError(t, err)
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), env.Python, filepath.Join("probe", "tests", "selfcheck.py"), c.version, c.connector)
			cmd.Env, cmd.Stderr = env.Environ(os.Environ(), front), &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			at := strings.LastIndex(string(out), "SELFCHECK ")
			require.GreaterOrEqual(t, at, 0, string(out))
			var told struct {
				placed
				Renamed placed `json:"renamed"`
			}
			require.NoError(t, json.Unmarshal(out[at+len("SELFCHECK "):], &told), string(out))
			t.Logf("asked %d, bound %d", told.Asked, told.Bound)
			require.Empty(t, told.Missing)
			require.Equal(t, told.Asked, told.Bound)
			require.Equal(t, len(told.Places), told.Bound)
			require.GreaterOrEqual(t, told.Bound, 40)
			require.Contains(t, told.Places, "sglang.srt.managers.scheduler:Scheduler.run_batch")
			if c.connector == NIXL {
				for _, name := range []string{"send_kvcache", "send_kvcache_slice", "send_aux", "_await_handles"} {
					require.Contains(t, told.Places, "sglang.srt.disaggregation.nixl.conn:NixlKVManager."+name)
				}
			}

			require.Equal(t, told.Asked-1, told.Renamed.Bound)
			for _, rule := range []spec.RuleID{"BLK-2", "BLK-3", "SIG-1", "SIG-2", "REQ-1", "REQ-3"} {
				require.Equal(t, []string{"sglang.srt.managers.scheduler:Scheduler.run_batch_renamed"}, told.Renamed.Missing[rule], rule)
			}
		})
	}
}
