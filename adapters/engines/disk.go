package engines

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// statFree is the room left for this user on the file system of path, in bytes.
func statFree(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("free space at %s: %w", path, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// diskBytes is the room that one file takes, which for small files is more than
// its length.
func diskBytes(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// A DiskError is too little room.
type DiskError struct {
	Path   string
	Needed int64 // bytes
	Free   int64 // bytes
}

func (e *DiskError) Error() string {
	return fmt.Sprintf("%s has %s free, and the installation needs %s", e.Path, Megabytes(e.Free), Megabytes(e.Needed))
}

// Megabytes writes a number of bytes as a person reads it.
func Megabytes(n int64) string {
	if n >= 10e9 {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%d MB", (n+5e5)/1e6)
}
