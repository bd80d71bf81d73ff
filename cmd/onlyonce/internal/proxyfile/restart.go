package proxyfile

import (
	"reflect"
	"slices"
)

// KeepUntilRestart returns a copy of f in which the settings that can change only when the
// proxy starts have their values from running, and the names of those that differ in f.
func (f *File) KeepUntilRestart(running *File) (kept *File, names []string) {
	c := *f
	old := restartSettings(reflect.ValueOf(running).Elem(), "")
	for i, s := range restartSettings(reflect.ValueOf(&c).Elem(), "") {
		if s.differs(old[i]) {
			s.section.Set(old[i].section)
			names = append(names, s.name)
		}
	}
	return &c, names
}

// RestartSettings returns the names of the settings that can change only when the proxy
// starts. For tls.cert, only adding and removing it need a restart.
func RestartSettings() (names []string) {
	for _, s := range restartSettings(reflect.ValueOf(New()).Elem(), "") {
		names = append(names, s.name)
	}
	return names
}

// A restartSetting is a setting that can change only when the proxy starts.
type restartSetting struct {
	name    string
	value   reflect.Value
	section reflect.Value // the value, or the section that depends on it
	onlySet bool          // only whether there is a value counts, not which
}

func (s restartSetting) differs(other restartSetting) bool {
	if s.onlySet {
		return s.value.IsZero() != other.value.IsZero()
	}
	return !reflect.DeepEqual(s.value.Interface(), other.value.Interface())
}

// restartSettings returns the restart settings of a section and of the sections in it.
func restartSettings(section reflect.Value, at string) (all []restartSetting) {
	for _, s := range settings(section) {
		name := join(at, s.name)
		switch {
		case s.restart == "always":
			all = append(all, restartSetting{name: name, value: s.value, section: s.value})
		case s.restart != "":
			inner := settings(s.value)
			i := slices.IndexFunc(inner, func(in setting) bool { return in.name == s.restart })
			all = append(all, restartSetting{name: join(name, s.restart), value: inner[i].value, section: s.value, onlySet: true})
		case isSection(s.value.Type()):
			all = append(all, restartSettings(s.value, name)...)
		}
	}
	return all
}
