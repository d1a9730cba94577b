package router

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/watermill-inbox/watermill-inbox/inbox"
)

// Switch is a setting with three values. Its text forms are auto, on, off, true and false, in any
// case; they parse from JSON (also as a bool), YAML, flags and the environment.
type Switch int

const (
	// Auto lets the transport decide: on for everything that can redeliver, off for Watermill's
	// in-process GoChannel. On a subscriber it means the router's setting.
	Auto Switch = iota
	// On always wins.
	On
	// Off always wins.
	Off
)

// ParseSwitch reads a text form. The empty text is [Auto].
func ParseSwitch(text string) (Switch, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "auto", "":
		return Auto, nil
	case "on", "true":
		return On, nil
	case "off", "false":
		return Off, nil
	}
	return Auto, fmt.Errorf("router: switch %q is unknown; use auto, on, off, true or false", inbox.Clean(text, 32))
}

// String gives auto, on or off.
func (s Switch) String() string {
	switch s {
	case Auto:
		return "auto"
	case On:
		return "on"
	case Off:
		return "off"
	}
	return fmt.Sprintf("Switch(%d)", int(s))
}

// Set parses text, for package flag.
func (s *Switch) Set(text string) error { return s.UnmarshalText([]byte(text)) }

// MarshalText gives the text form.
func (s Switch) MarshalText() ([]byte, error) {
	if err := s.validate("Switch"); err != nil {
		return nil, err
	}
	return []byte(s.String()), nil
}

// UnmarshalText parses a text form.
func (s *Switch) UnmarshalText(text []byte) (err error) {
	parsed, err := ParseSwitch(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// UnmarshalJSON parses a text form, a bool, or null for [Auto].
func (s *Switch) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch value := value.(type) {
	case nil:
		*s = Auto
		return nil
	case bool:
		return s.UnmarshalText(fmt.Append(nil, value))
	case string:
		return s.UnmarshalText([]byte(value))
	}
	return fmt.Errorf("router: a switch is a text or a bool, not %T", value)
}

func (s Switch) validate(field string) error {
	if s < Auto || s > Off {
		return fmt.Errorf("router: %s is %d; use router.Auto, router.On or router.Off", field, int(s))
	}
	return nil
}

// decide resolves a subscriber's switch over the router's, over what the transport needs.
func decide(subscriber, router Switch, redelivers bool) bool {
	for _, s := range []Switch{subscriber, router} {
		if s != Auto {
			return s == On
		}
	}
	return redelivers
}
