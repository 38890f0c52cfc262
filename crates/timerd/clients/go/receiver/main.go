// Command receiver receives webhooks, and accepts those that are signed with $WEBHOOK_SECRET: receiver PORT
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// tolerance is how old or how far ahead the time of a call may be.
const tolerance = 5 * time.Minute

// longest is the maximum length of a body in bytes.
const longest = 1 << 20

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(key) == 0 || len(os.Args) != 2 {
		log.Fatal("usage: WEBHOOK_SECRET=whsec_… receiver PORT")
	}
	receive := func(response http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, longest))
		if err == nil {
			err = verify(key, request.Header, body, time.Now())
		}
		if err != nil {
			fmt.Println("refused:", err)
			// The service makes the call again. It would give up after 400.
			response.WriteHeader(http.StatusUnauthorized)
			return
		}
		// A call may be repeated. Its id stays the same, so remember the ids that you have processed.
		fmt.Println("verified", request.Header.Get("webhook-id"), string(body))
		response.WriteHeader(http.StatusNoContent)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(receive)))
}

// verify checks the signature of a call by Standard Webhooks. While a secret is rotated, a call has a
// signature for each secret.
func verify(key []byte, headers http.Header, body []byte, now time.Time) error {
	id, timestamp := headers.Get("webhook-id"), headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("the time is missing or wrong")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("the call is too old or too new")
	}
	hash := hmac.New(sha256.New, key)
	fmt.Fprintf(hash, "%s.%s.%s", id, timestamp, body)
	expected := hash.Sum(nil)
	for _, signature := range strings.Fields(headers.Get("webhook-signature")) {
		if !strings.HasPrefix(signature, "v1,") {
			continue
		}
		found, err := base64.StdEncoding.DecodeString(signature[len("v1,"):])
		if err == nil && hmac.Equal(found, expected) {
			return nil
		}
	}
	return errors.New("no signature is right")
}
