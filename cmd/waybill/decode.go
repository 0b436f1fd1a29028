package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

// decodeFlag says whether payloads are shown as the server's codec decodes them.
type decodeFlag bool

func addDecode(flags *pflag.FlagSet) *decodeFlag {
	d := new(decodeFlag)
	flags.BoolVar((*bool)(d), "decode", false, "show payloads as the codec of the server (see waybill serve --codec) decodes them for you")
	onlyByFlag(flags, "decode")
	return d
}

// asks is a client that asks for them so.
func (d *decodeFlag) asks(client *api.Client) *api.Client {
	if *d {
		return client.Decoding()
	}
	return client
}

// tellUndecoded says on standard error why payloads are not decoded, if they are not.
func tellUndecoded(cmd *cobra.Command, why string) {
	if why != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), words.Clean("Payloads are as they are stored, and not decoded: "+why+"."))
	}
}
