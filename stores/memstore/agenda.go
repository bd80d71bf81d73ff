package memstore

// An agenda is a heap of entries, in which the one that expires next, or whose result does, comes first. Each
// entry knows its place, so that it can be removed.
type agenda []*entry

// due returns the first entry, if it is due.
func (a agenda) due(now moment) *entry {
	if len(a) > 0 && a[0].at <= now {
		return a[0]
	}
	return nil
}

// set puts e in its place, or removes it if it is never due.
func (a *agenda) set(e *entry) {
	at := e.due()
	if at == never {
		a.remove(e)
		return
	}
	e.at = at
	if e.place != 0 {
		a.down(e.place - 1)
		a.up(e.place - 1)
		return
	}
	*a = append(*a, e)
	e.place = len(*a)
	a.up(e.place - 1)
}

// remove removes e if it is in the agenda.
func (a *agenda) remove(e *entry) {
	if e.place == 0 {
		return
	}
	i, last := e.place-1, len(*a)-1
	a.swap(i, last)
	(*a)[last] = nil
	*a = (*a)[:last]
	e.place = 0
	if i < last {
		a.down(i)
		a.up(i)
	}
}

func (a agenda) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if a[parent].at <= a[i].at {
			return
		}
		a.swap(i, parent)
		i = parent
	}
}

func (a agenda) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a); child++ {
			if a[child].at < a[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}

func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}
