package child

import "syscall"

// DieWithUs has the system kill a child when the tests die without a word, of a
// time-out for example.
func DieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
