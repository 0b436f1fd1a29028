package process

import "syscall"

// dieWithUs has the system kill a child when the tests die without a word, of a
// time-out for example.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
