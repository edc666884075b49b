// Command okvqa_like writes a folder with the files of OK-VQA and of COCO's captions as they are published, about the pictures of the
// built-in set: what reads the real folders can be tried before they are downloaded.
//
//	go run ./scripts/okvqa_like [-train N] [-val N] [-seed N] FOLDER
//
// Questions have ten annotators, pictures five captions. Nothing of it is OK-VQA's or COCO's.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/shapes"
)

func main() {
	opt := shapes.DefaultOptions()
	opt.ReaderQuestions, opt.DevQueries = 0, 0
	flag.IntVar(&opt.TrainQueries, "train", 140, "questions of train2014")
	flag.IntVar(&opt.ValQueries, "val", 60, "questions of val2014")
	flag.Int64Var(&opt.Seed, "seed", opt.Seed, "draws the pictures")
	flag.Parse()
	err := fmt.Errorf("want one folder, got %d: go run ./scripts/okvqa_like FOLDER", flag.NArg())
	if flag.NArg() == 1 {
		err = write(flag.Arg(0), opt)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "okvqa_like:", err)
		os.Exit(1)
	}
}

type object = map[string]any

// write makes the files of both splits.
func write(dir string, opt shapes.Options) error {
	q := shapes.MakeQuestions(opt)
	if err := os.MkdirAll(filepath.Join(dir, "annotations"), 0o755); err != nil {
		return err
	}
	for _, split := range []string{shapes.Train, shapes.Val} {
		if err := writeSplit(dir, split+"2014", q, split); err != nil {
			return err
		}
	}
	return nil
}

func writeSplit(dir, name string, q *shapes.Questions, split string) error {
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		return err
	}
	var questions, annotations, images, captions []object
	from, to := q.Split(split)
	last := -1
	for row := from; row < to; row++ {
		item := q.Items[row]
		id := 1000 + 7*item.Scene // of the picture
		if item.Scene != last {
			last = item.Scene
			file := fmt.Sprintf("COCO_%s_%012d.jpg", name, id)
			var b bytes.Buffer
			if err := jpeg.Encode(&b, q.Image(row), &jpeg.Options{Quality: 95}); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name, file), b.Bytes(), 0o644); err != nil {
				return err
			}
			images = append(images, object{"id": id, "file_name": file, "height": shapes.ImageSize, "width": shapes.ImageSize})
			for _, c := range describe(q.Caption(row)) {
				captions = append(captions, object{"id": 10*id + len(captions)%5, "image_id": id, "caption": c})
			}
		}
		question := 10*id + row%3
		questions = append(questions, object{"image_id": id, "question_id": question, "question": item.Question})
		var answers []object
		for _, a := range item.Answers {
			for range a.Count {
				answers = append(answers, object{"answer_id": len(answers) + 1, "raw_answer": a.Answer, "answer": a.Answer,
					"answer_confidence": "yes"})
			}
		}
		annotations = append(annotations, object{"image_id": id, "question_id": question, "question_type": "eight", "answer_type": "other",
			"confidence": 3, "answers": answers})
	}
	about := object{"data_type": "mscoco", "data_subtype": name, "info": object{"description": "pictures of the built-in set"}}
	for file, lists := range map[string]object{
		"OpenEnded_mscoco_" + name + "_questions.json": {"task_type": "Open-Ended", "questions": questions},
		"mscoco_" + name + "_annotations.json":         {"annotations": annotations},
		"annotations/captions_" + name + ".json":       {"images": images, "annotations": captions},
	} {
		for k, v := range about {
			lists[k] = v
		}
		text, err := json.Marshal(lists)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describe words a list of things as five people might.
func describe(things string) []string {
	list := strings.Split(things, ", ")
	back := slices.Clone(list)
	slices.Reverse(back)
	return []string{"A " + strings.Join(list, " and a ") + ".", "There is a " + strings.Join(back, ", a ") + " in the picture.",
		"Drawing of a " + list[0] + " on a plain ground.", "A " + strings.Join(back, " next to a ") + ".",
		fmt.Sprintf("%d things, one of them a %s.", len(list), back[0])}
}
