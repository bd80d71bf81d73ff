package outbox

import (
	"errors"
	"maps"
	"slices"
)

// awayTopics are topics of which the broker took nothing when the relay last published some of
// their messages. Each maps to whether the broker has taken messages of other topics since then:
// if so, the topic is away and not the broker.
type awayTopics map[string]bool

// mostAway bounds the memory for topics, and the length of the list that a queue is given.
const mostAway = 1000

// note remembers the outcome of publishing entries.
func (a awayTopics) note(entries []Entry, errs []error) {
	taken, refused := make(map[string]bool), make(map[string]bool)
	for i, e := range entries {
		if errs[i] == nil {
			taken[e.Topic] = true
		} else if errors.Is(errs[i], ErrUnavailable) {
			refused[e.Topic] = true
		}
	}
	doubt := false
	for topic := range refused {
		if taken[topic] || a[topic] {
			continue
		}
		if len(a) >= mostAway {
			clear(a)
		}
		a[topic], doubt = false, true
	}
	for topic := range a {
		switch {
		case taken[topic]:
			delete(a, topic)
		case len(taken) > 0:
			a[topic] = true
		case doubt: // a topic that was not away is refused, too
			a[topic] = false
		}
	}
}

// onlyTopic reports whether the topic is away and the broker is not.
func (a awayTopics) onlyTopic(topic string) bool { return a[topic] }

// inDoubt reports whether it is not known whether topics are away or the broker.
func (a awayTopics) inDoubt() bool {
	for _, alone := range a {
		if !alone {
			return true
		}
	}
	return false
}

func (a awayTopics) topics() []string { return slices.Collect(maps.Keys(a)) }
