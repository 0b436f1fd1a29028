package chaos

import "syscall"

// dieWithUs has the system kill a child when this process dies without a word.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
