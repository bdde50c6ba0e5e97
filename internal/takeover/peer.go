package takeover

import (
	"encoding/json"
	"fmt"
)

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

// Predecessor is the process that has yielded.
type Predecessor struct {
	Peer
	// State is what it has handed over. It may be of another version of the program.
	State json.RawMessage
}

// unknownUser is where it cannot be told whose a process is.
const unknownUser = -1

// TakenError says that another process has the name.
type TakenError struct {
	Name     string
	Process  int  // its number; 0 where it is gone, or not to be seen from here
	Stranger bool // it is another user's, and not root's, or does not answer at all
	User     int  // that it is of; -1 where that is not known
}

func (e *TakenError) Error() string {
	who := Peer{e.Process}.String()
	switch {
	case e.Stranger && e.User == unknownUser:
		who += " that does not answer"
	case e.Stranger:
		who += fmt.Sprintf(" of user %d", e.User)
	}
	return fmt.Sprintf("%s has the name %s", who, e.Name)
}
