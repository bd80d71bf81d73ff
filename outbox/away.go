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

// mostAway bounds the memory for topics, and the length of the list that a queue is given. While that
// many are in doubt, the messages of further topics are not: if they waited for the broker as well, the
// queue would never be asked for messages behind theirs.
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
		doubt = true
		if a.hasNoRoomFor(topic) {
			a.forgetAlone(refused)
		}
		if !a.hasNoRoomFor(topic) {
			a[topic] = false
		}
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

func (a awayTopics) hasNoRoomFor(topic string) bool {
	_, known := a[topic]
	return !known && len(a) >= mostAway
}

// forgetAlone forgets a topic that is away while the broker is not, unless it is one of those that
// were just refused. The topic may no longer be in use.
func (a awayTopics) forgetAlone(refused map[string]bool) {
	for topic, alone := range a {
		if alone && !refused[topic] {
			delete(a, topic)
			return
		}
	}
}

// onlyTopic reports whether a topic that was refused is away and the broker is not. There may be too
// many topics to know it of all.
func (a awayTopics) onlyTopic(topic string) bool { return a[topic] || a.hasNoRoomFor(topic) }

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
