package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"

	"github.com/userspace-proxy/userspace-proxy/internal/view"
)

// screen shows one text after another. Close it.
type screen interface {
	show(text string) error
	close()
}

// stream writes each text below the last.
type stream struct{ to io.Writer }

func (s stream) show(text string) error {
	_, err := io.WriteString(s.to, text)
	return err
}

func (stream) close() {}

// canvas shows each text in the place of the last, on a terminal: on its other
// screen, so that what stood there before is there again at the end.
type canvas struct{ terminal *os.File }

// What a terminal obeys (ECMA-48, and xterm's other screen).
const (
	otherScreen   = "\x1b[?1049h"
	firstScreen   = "\x1b[?1049l"
	hideCursor    = "\x1b[?25l"
	showCursor    = "\x1b[?25h"
	toTheTop      = "\x1b[H"
	clearLine     = "\x1b[K"
	clearTheRest  = "\x1b[J"
	usualColumns  = 80
	usualRows     = 24
	smallestSpace = 10 // columns; below that there is nothing to see
)

func newCanvas(terminal *os.File) *canvas {
	fmt.Fprint(terminal, otherScreen+hideCursor)
	return &canvas{terminal}
}

func (c *canvas) show(text string) error {
	columns, rows, err := term.GetSize(int(c.terminal.Fd()))
	if err != nil || columns < smallestSpace {
		columns, rows = usualColumns, usualRows
	}
	var b strings.Builder
	b.WriteString(toTheTop)
	for i, line := range view.Lines(text, columns, rows) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearTheRest)
	_, err = c.terminal.WriteString(b.String())
	return err
}

func (c *canvas) close() { fmt.Fprint(c.terminal, showCursor+firstScreen) }

// canDraw says whether a file is a terminal that does as told. A Windows console
// may not.
func canDraw(file *os.File) bool {
	return runtime.GOOS != "windows" && term.IsTerminal(int(file.Fd()))
}
