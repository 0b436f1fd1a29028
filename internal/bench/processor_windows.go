package bench

import (
	"syscall"
	"time"
)

// processorTime is what this process has used, 0 if the system does not say.
func processorTime() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var u syscall.Rusage
	if err := syscall.GetProcessTimes(process, &u.CreationTime, &u.ExitTime, &u.KernelTime, &u.UserTime); err != nil {
		return 0
	}
	return ticks(u.UserTime) + ticks(u.KernelTime)
}

// ticks are of 100 ns. Filetime's own method takes them for a date.
func ticks(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
