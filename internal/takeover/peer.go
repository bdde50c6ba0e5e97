package takeover

import "fmt"

// Peer is the process at the other end.
type Peer struct {
	Process int // its number; 0 where it is in a process namespace that this one does not see
}

func (p Peer) String() string {
	if p.Process == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", p.Process)
}

// TakenError says that another process has the name.
type TakenError struct {
	Name     string
	Process  int  // its number; 0 where it is gone, or not to be seen from here
	Stranger bool // it is another user's, and not root's
	User     int  // that it is of, where it is a stranger
}

func (e *TakenError) Error() string {
	who := Peer{e.Process}.String()
	if e.Stranger {
		who += fmt.Sprintf(" of user %d", e.User)
	}
	return fmt.Sprintf("%s has the name %s", who, e.Name)
}
