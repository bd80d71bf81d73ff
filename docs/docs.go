// Package docs has the pages of this folder, which "onlyonce docs" serves. Go embeds files of a
// package's own folder only, so it is here.
package docs

import "embed"

// Files has the pages and the images. README.md is the first page and lists the others.
//
//go:embed *.md api/*.md img
var Files embed.FS
