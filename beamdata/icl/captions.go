package icl

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"fulcrum/internal/jsonwords"
)

// Describe is what is asked about an image whose captions are its answers.
const Describe = "Describe the image in one sentence."

// HasCaptions reports whether a folder holds COCO's captions as LoadCaptions reads them, and no questions.
func HasCaptions(root string) bool {
	paths, err := namesBelow("", root)
	if err != nil {
		return false
	}
	questions, err := one("", paths, "", questionsOf("train"))
	captions, cerr := one("", paths, "", captionsOf("train"))
	return err == nil && cerr == nil && questions == "" && captions != ""
}

// LoadCaptions reads a folder with COCO's captions under the names that they are published with, in the folder itself or in folders
// right below it:
//
//	annotations/captions_train2014.json    train2014/COCO_train2014_000000000009.jpg
//	annotations/captions_val2014.json      val2014/COCO_val2014_000000000042.jpg
//
// A record is an image, its id the image's, its answers the captions. Images of train come first, in the order of their file; those
// of val follow and are held out.
func LoadCaptions(key, root string) (*Set, error) {
	files, err := namesBelow(key, root)
	if err != nil {
		return nil, err
	}
	b := newBuilder()
	b.Captions = true
	for _, split := range []string{"train", "val"} {
		path, err := one(key+"="+root, files, split+" captions", captionsOf(split))
		if err != nil {
			return nil, err
		}
		if path == "" && split == "train" {
			return nil, fmt.Errorf("%s=%s: no captions_train2014.json there or one folder below: unpack COCO's annotations there", key, root)
		}
		if path == "" {
			continue
		}
		folder, err := pictures(key+"="+root, files, regexp.MustCompile(split+`\d{4}`).FindString(filepath.Base(path)))
		if err != nil {
			return nil, err
		}
		if err := b.readCaptions(path, folder, split == "val"); err != nil {
			return nil, err
		}
	}
	b.at = func(row int) string { return fmt.Sprintf("%s: image %s", root, filepath.Base(b.Records.At(row).Image)) }
	return b.seal(), nil
}

func captionsOf(split string) string { return `captions_` + split + `\d{4}\.json` }

// readCaptions joins the images and the captions of a file by the image's id.
func (b *builder) readCaptions(path, folder string, heldOut bool) error {
	first := b.Records.Len()
	err := eachOf(path, "images", func(raw []byte, _ func() int) error {
		var image struct {
			ID   *int64 `json:"id"`
			File string `json:"file_name"`
		}
		if err := jsonwords.Unmarshal(raw, &image); err != nil {
			return err
		}
		if image.ID == nil || image.File == "" {
			return errors.New("want id and file_name")
		}
		return b.take(Record{ID: *image.ID, Image: filepath.Join(folder, image.File), Question: Describe, ImageID: imageID(*image.ID),
			HeldOut: heldOut})
	})
	if err != nil {
		return err
	}
	return eachOf(path, "annotations", func(raw []byte, _ func() int) error {
		var a struct {
			ImageID int64  `json:"image_id"`
			Caption string `json:"caption"`
		}
		if err := jsonwords.Unmarshal(raw, &a); err != nil {
			return err
		}
		row, ok := b.rows[a.ImageID]
		if !ok || row < first {
			return fmt.Errorf("a caption of image %d, which is not among the file's images", a.ImageID)
		}
		if caption := strings.Join(strings.Fields(a.Caption), " "); caption != "" {
			b.Records.answer(row, append(b.Records.At(row).Answers, caption))
		}
		return nil
	})
}
