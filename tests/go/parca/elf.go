package main

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
)

// buildIDOf is the GNU build id of an executable in hex; the Go one where there is no other.
func buildIDOf(program string) string {
	file := must2(elf.Open(program))
	defer file.Close()
	section := file.Section(".note.gnu.build-id")
	if section == nil {
		must(fmt.Errorf("%s has no GNU build id", program))
	}
	note := must2(section.Data())
	return hex.EncodeToString(note[16:])
}
