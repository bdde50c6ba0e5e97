package manifest

import "strings"

// nearest is the name that a mistyped one probably means, empty where none is
// near: the same but for case, or at most two letters away.
func nearest(mistyped string, names []string) string {
	const far = 3
	best, distance := "", far
	for _, name := range names {
		if strings.EqualFold(mistyped, name) {
			return name
		}
		if d := editDistance(mistyped, name); d < distance && d <= len(name)/2 {
			best, distance = name, d
		}
	}
	return best
}

// editDistance is Levenshtein's: how many letters must be put in, taken out or
// changed. Texts longer than any field's name are far from all of them.
func editDistance(a, b string) int {
	const longest = 64
	if len(a) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
