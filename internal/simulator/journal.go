package simulator

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// journal appends one line per effect. A line is written by one call before anybody is
// answered; without fsync it survives the process, not the machine.
type journal struct{ file *os.File }

// journalLine is an effect and the answer that its key is given from then on.
type journalLine struct {
	Effect Effect     `json:"effect"`
	Saved  *savedLine `json:"saved,omitempty"`
}

type savedLine struct {
	Digest string          `json:"digest"`
	Used   time.Time       `json:"used"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

func (j *journal) append(e Effect, k *keyEntry) error {
	line := journalLine{Effect: e}
	if k != nil {
		line.Saved = &savedLine{hex.EncodeToString(k.digest[:]), k.used, k.answer.status, k.answer.body}
	}
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(data, '\n'))
	return err
}

// ReadJournal returns the effects in a journal, also of a simulator that was killed. A
// last line without its end was never answered, and is left out.
func ReadJournal(path string) ([]Effect, error) {
	lines, _, err := readLines(path)
	effects := make([]Effect, len(lines))
	for i, l := range lines {
		effects[i] = l.Effect
	}
	return effects, err
}

// readLines returns the complete lines and how many bytes they take.
func readLines(path string) (lines []journalLine, size int64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()

	r := bufio.NewReader(file)
	for {
		data, err := r.ReadBytes('\n')
		if err == io.EOF {
			return lines, size, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var line journalLine
		if err := decodeStrict(bytes.TrimSpace(data), &line); err != nil {
			return nil, 0, fmt.Errorf("%s, line %d: %w", path, len(lines)+1, err)
		}
		lines = append(lines, line)
		size += int64(len(data))
	}
}

// openJournal fills l from what the file holds and appends to it from then on.
func (l *ledger) openJournal(path string) error {
	lines, size, err := readLines(path)
	if err != nil {
		return err
	}
	for i, line := range lines {
		e := line.Effect
		if l.totals[e.Service] == nil {
			return fmt.Errorf("%s, line %d: service %q is unknown", path, i+1, e.Service)
		}
		l.count(e)
		if line.Saved == nil {
			continue
		}
		k := &keyEntry{used: line.Saved.Used, answer: answer{status: line.Saved.Status, body: append(line.Saved.Body, '\n')}}
		digest, err := hex.DecodeString(line.Saved.Digest)
		if err != nil || copy(k.digest[:], digest) != len(k.digest) {
			return fmt.Errorf("%s, line %d: bad digest", path, i+1)
		}
		l.keys[target{e.Service, e.Reference}] = k
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// A torn last line must not swallow the next effect.
	if err := file.Truncate(size); err != nil {
		return errors.Join(err, file.Close())
	}
	l.journal = &journal{file}
	return nil
}
