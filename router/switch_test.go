package router_test

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/watermill-inbox/router"
)

// A13: the text forms parse from JSON, flags and the environment, and nothing else does.
func TestA13_SwitchTextForms(t *testing.T) {
	for text, want := range map[string]router.Switch{
		"auto": router.Auto, "": router.Auto, "on": router.On, "TRUE": router.On, " On ": router.On,
		"off": router.Off, "false": router.Off,
	} {
		got, err := router.ParseSwitch(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"yes", "1", "onn", "\x00", "automatic"} {
		_, err := router.ParseSwitch(text)
		require.ErrorContains(t, err, "use auto, on, off, true or false", text)
	}
}

func TestA13_SwitchFromJSONAndFlags(t *testing.T) {
	var cfg struct{ A, B, C, D, E router.Switch }
	require.NoError(t, json.Unmarshal([]byte(`{"A":"off","B":true,"C":false,"D":null,"E":"auto"}`), &cfg))
	require.Equal(t, []router.Switch{router.Off, router.On, router.Off, router.Auto, router.Auto}, []router.Switch{cfg.A, cfg.B, cfg.C, cfg.D, cfg.E})
	require.ErrorContains(t, json.Unmarshal([]byte(`{"A":7}`), &cfg), "not float64")
	require.ErrorContains(t, json.Unmarshal([]byte(`{"A":"maybe"}`), &cfg), "maybe")

	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	require.JSONEq(t, `{"A":"off","B":"on","C":"off","D":"auto","E":"auto"}`, string(text))
	_, err = json.Marshal(router.Switch(9))
	require.ErrorContains(t, err, "use router.Auto")

	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.Var(&cfg.D, "inbox", "")
	require.NoError(t, flags.Parse([]string{"-inbox", "on"}))
	require.Equal(t, router.On, cfg.D)
}
