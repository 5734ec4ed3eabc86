package launch

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// beOwner makes a folder with a file in it, tells its path and waits to be killed.
func beOwner() error {
	s, err := NewScratch()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Path, "left"), nil, 0o600); err != nil {
		return err
	}
	fmt.Println(s.Path)
	select {}
}

// owner starts a program that owns a folder.
func owner(t *testing.T) (cmd *exec.Cmd, path string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), harnessVariable+"=owner")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	path = strings.TrimSpace(line)
	require.FileExists(t, filepath.Join(path, "left"))
	return cmd, path
}

// The folder of a program that was killed is removed by the next, and no other.
func TestScratchOfTheKilled(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	killed, gone := owner(t)
	_, kept := owner(t)
	require.NoError(t, os.Symlink(temp, filepath.Join(gone, "to-all")))
	require.NoError(t, os.MkdirAll(filepath.Join(gone, "a", "b"), 0o700))

	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	s, err := NewScratch()
	require.NoError(t, err)
	require.NoDirExists(t, gone)
	require.FileExists(t, filepath.Join(kept, "left"), "its owner lives")

	again, err := NewScratch()
	require.NoError(t, err)
	require.DirExists(t, s.Path, "one program may have several")
	require.NoError(t, again.Close())
	require.NoError(t, s.Close())
	require.NoDirExists(t, s.Path)
	require.NoError(t, (*Scratch)(nil).Close())
}

// What is not known to be a folder of a program of ours stays.
func TestScratchOfOthers(t *testing.T) {
	temp, elsewhere := t.TempDir(), t.TempDir()
	owned := func(dir string) string {
		t.Helper()
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, ownerFile), nil, 0o600))
		return dir
	}
	owned(elsewhere)
	target := owned(filepath.Join(temp, "target")) // another name
	for link, to := range map[string]string{"conform-out": elsewhere, "conform-in": "target"} {
		require.NoError(t, os.Symlink(to, filepath.Join(temp, link)))
	}
	bare := filepath.Join(temp, "conform-bare")
	require.NoError(t, os.Mkdir(bare, 0o700))
	linked := filepath.Join(temp, "conform-linked")
	require.NoError(t, os.Mkdir(linked, 0o700))
	require.NoError(t, os.Symlink(filepath.Join("..", "target", ownerFile), filepath.Join(linked, ownerFile)))
	file := filepath.Join(temp, "conform-file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	stay := []string{elsewhere, target, bare, linked, file, filepath.Join(temp, "conform-out"), filepath.Join(temp, "conform-in")}
	if os.Getuid() == 0 {
		foreign := owned(filepath.Join(temp, "conform-foreign"))
		require.NoError(t, os.Chown(foreign, 65534, 65534))
		stay = append(stay, foreign)
	}
	left := owned(filepath.Join(temp, "conform-left"))

	sweep(temp)
	require.NoDirExists(t, left, "the others stay not because nothing goes")
	for _, path := range stay {
		_, err := os.Lstat(path)
		require.NoError(t, err)
	}
	require.FileExists(t, filepath.Join(elsewhere, ownerFile))
	require.FileExists(t, filepath.Join(target, ownerFile))
	sweep(filepath.Join(temp, "absent"))
}
