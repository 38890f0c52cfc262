// Command schedule schedules a webhook: schedule ID URL
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
)

type webhook struct {
	URL  string `json:"url"`
	Body string `json:"body"`
}

type schedule struct {
	After string `json:"after"`
}

type timer struct {
	Webhook  webhook  `json:"webhook"`
	Schedule schedule `json:"schedule"`
}

// done is the answer to an insert.
type done struct {
	Result string `json:"result"`
	Due    string `json:"due"`
}

// problem is the answer to a request that failed.
type problem struct {
	Detail string `json:"detail"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: schedule ID URL")
	}
	done, err := put(os.Args[1], timer{webhook{os.Args[2], `{"order": 7}`}, schedule{"1s"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Result, done.Due)
}

// put inserts a timer. If its response is lost, the request can be repeated.
func put(id string, timer timer) (done, error) {
	var done done
	body, err := json.Marshal(timer)
	if err != nil {
		return done, err
	}
	address := os.Getenv("TIMERD_URL") + "/v1/timers/" + url.PathEscape(id)
	request, err := http.NewRequest(http.MethodPut, address, bytes.NewReader(body))
	if err != nil {
		return done, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TIMERD_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return done, err
	}
	defer response.Body.Close()
	answer := json.NewDecoder(response.Body)
	if response.StatusCode >= 400 {
		var problem problem
		if err := answer.Decode(&problem); err != nil {
			return done, err
		}
		return done, fmt.Errorf("%s: %s", response.Status, problem.Detail)
	}
	return done, answer.Decode(&done)
}
