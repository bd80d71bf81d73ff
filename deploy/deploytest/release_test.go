package deploytest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRelease_BuildsWhatTheDockerfileBuilds(t *testing.T) {
	var release struct {
		Builds []struct {
			Main         string
			Env, Flags   []string
			LDFlags      []string
			Goos, Goarch []string
		}
		Archives  []struct{ Files []string }
		DockersV2 []struct {
			Dockerfile string
			Platforms  []string
			ExtraFiles []string `json:"extra_files"`
		} `json:"dockers_v2"`
	}
	decodeLoose(t, ".goreleaser.yaml", &release)
	if len(release.Builds) != 1 || len(release.DockersV2) != 1 || len(release.Archives) != 1 {
		t.Fatalf("it has not one build, one archive and one image: %+v", release)
	}
	line, build := buildLine(t), release.Builds[0]
	for _, part := range slices.Concat(build.Env, build.Flags, []string{build.Main, strings.TrimSuffix(build.LDFlags[0], "v{{ .Version }}")}) {
		if !strings.Contains(line, part) {
			t.Errorf("the Dockerfile does not build with %q: %s", part, line)
		}
	}
	for _, platform := range release.DockersV2[0].Platforms {
		system, processor, _ := strings.Cut(platform, "/")
		if !slices.Contains(build.Goos, system) || !slices.Contains(build.Goarch, processor) {
			t.Errorf("no binary is built for the image of %s", platform)
		}
	}
	for _, name := range append(release.Archives[0].Files, release.DockersV2[0].ExtraFiles...) {
		if found, err := filepath.Glob(filepath.Join(repository, name)); err != nil || len(found) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	if _, err := os.Stat(filepath.Join(repository, release.DockersV2[0].Dockerfile)); err != nil {
		t.Fatal(err)
	}

	// The image of a release is that of the Dockerfile, but for where its files come from.
	image := func(name string) (list []instruction) {
		for _, in := range instructionsOf(t, name) {
			if in.name == "FROM" {
				list = nil
			}
			if in.name != "COPY" && in.name != "ARG" {
				list = append(list, in)
			}
		}
		return list
	}
	if got, want := image(release.DockersV2[0].Dockerfile), image("Dockerfile"); !slices.Equal(got, want) {
		t.Errorf("the image of a release has\n%v, want\n%v", got, want)
	}
}
