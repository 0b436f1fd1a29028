package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// list is what the directory of the same name says.
type list struct {
	suites  map[string]*suite
	mutants []mutant
}

// suite is tests of one package, as its test binary is called.
type suite struct {
	name        string
	environment []string
	pkg         string // ./orchestrator
	arguments   []string
}

// mutant is one rule broken.
type mutant struct {
	id       string // its list and its name: lane/replies-lost
	file     string
	breaks   string // what, and whose requirement
	suites   []*suite
	survives string // why no suite finds it, "" if one must
	old, new string
}

// readList reads what there is to try. A line is a word and what it says, an
// empty line ends a mutant, # begins a comment:
//
//	suite   name [NAME=value ...] ./package [flags of the test binary]
//
// in suites.txt, and in the others
//
//	mutant  name
//	file    orchestrator/lane/lane.go
//	breaks  S3: what goes wrong
//	found   by these suites, the cheapest first; one of them must find it
//	survives  why none does, instead
//	<<<
//	text that stands once in the file
//	===
//	text that takes its place
//	>>>
func readList(dir fs.FS) (*list, error) {
	l := &list{suites: make(map[string]*suite)}
	files, err := fs.Glob(dir, "*.txt")
	if err != nil {
		return nil, err
	}
	const suites = "suites.txt" // mutants name them
	files = append([]string{suites}, slices.DeleteFunc(files, func(f string) bool { return f == suites })...)
	seen := make(map[string]bool)
	for _, name := range files {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		p := parser{list: l, group: strings.TrimSuffix(path.Base(name), ".txt"), lines: strings.Split(string(text), "\n"), seen: seen}
		if err := p.parse(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, p.at, err)
		}
	}
	return l, nil
}

type parser struct {
	*list
	group string
	lines []string
	at    int // lines read so far
	seen  map[string]bool
}

// line takes the next line.
func (p *parser) line() (string, bool) {
	if p.at == len(p.lines) {
		return "", false
	}
	p.at++
	return p.lines[p.at-1], true
}

func (p *parser) parse() error {
	var m *mutant
	for line, ok := p.line(); ok; line, ok = p.line() {
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case line == "" || word[0] == '#':
		case word == "suite":
			if err := p.suite(rest); err != nil {
				return err
			}
		case word == "mutant":
			m = &mutant{id: p.group + "/" + rest}
		case m == nil:
			return fmt.Errorf("%q belongs to no mutant", line)
		case word == "file":
			m.file = rest
		case word == "breaks":
			m.breaks = rest
		case word == "survives":
			m.survives = rest
		case word == "found":
			for name := range strings.FieldsSeq(rest) {
				s := p.suites[name]
				if s == nil {
					return fmt.Errorf("there is no suite %q", name)
				}
				m.suites = append(m.suites, s)
			}
		case word == "<<<":
			var err error
			if m.old, err = p.until("==="); err != nil {
				return err
			}
			if m.new, err = p.until(">>>"); err != nil {
				return err
			}
			if err := p.add(m); err != nil {
				return err
			}
			m = nil
		default:
			return fmt.Errorf("unknown word %q", word)
		}
	}
	if m != nil {
		return fmt.Errorf("mutant %s changes nothing", m.id)
	}
	return nil
}

// until takes the lines before the mark.
func (p *parser) until(mark string) (string, error) {
	first := p.at
	for line, ok := p.line(); ok; line, ok = p.line() {
		if line == mark {
			return strings.Join(p.lines[first:p.at-1], "\n"), nil
		}
	}
	return "", fmt.Errorf("%s is missing", mark)
}

func (p *parser) suite(text string) error {
	words := strings.Fields(text)
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") })
	if at < 1 {
		return errors.New("a suite has a name and a package that begins with ./")
	}
	s := &suite{name: words[0], environment: words[1:at], pkg: words[at], arguments: words[at+1:]}
	if p.suites[s.name] != nil {
		return fmt.Errorf("there are two suites %q", s.name)
	}
	p.suites[s.name] = s
	return nil
}

// requirement begins what a mutant breaks: of the pattern, or of a decision.
var requirement = regexp.MustCompile(`^([SAVTCP][1-8]|ADR [0-9]{4}): `)

func (p *parser) add(m *mutant) error {
	switch {
	case m.file == "" || len(m.suites) == 0:
		return fmt.Errorf("mutant %s has no file, or no suite that must find it", m.id)
	case !requirement.MatchString(m.breaks):
		return fmt.Errorf("mutant %s must say whose requirement it breaks, for example S3, or ADR 0012, and how", m.id)
	case p.seen[m.id]:
		return fmt.Errorf("there are two mutants %s", m.id)
	}
	p.seen[m.id] = true
	p.mutants = append(p.mutants, *m)
	return nil
}

// apply breaks the rule in the text of the file.
func (m *mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); m.old == "" || n != 1 {
		return "", fmt.Errorf("its text stands %d times in %s, and must stand there once: %q", n, m.file, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}
