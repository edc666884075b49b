package conversation

import (
	"reflect"
	"testing"

	"fulcrum/beamdata/shapes"
	"fulcrum/rewardutil/vqa"
)

func TestShapes(t *testing.T) {
	sizes := shapes.DefaultOptions()
	sizes.TrainQueries, sizes.ValQueries, sizes.DevQueries = 3000, 200, 300
	opt := DefaultOptions()
	opt.Suffix = " Answer in one word."
	b := Shapes(sizes, opt)
	if b.Train.Len() != 3000 || b.Val.Len() != 200 || b.Eval.Len() != 300 || !b.Synthetic {
		t.Fatalf("got %d, %d, %d samples", b.Train.Len(), b.Val.Len(), b.Eval.Len())
	}
	side := map[string]string{}
	for _, set := range []*Set{b.Train, b.Val, b.Eval} {
		for i := range set.Len() {
			s, err := set.Sample(i)
			if err != nil {
				t.Fatal(err)
			}
			parts := s.Messages[0].Parts
			if other, ok := side[parts[0].Key]; ok && other != set.Name {
				t.Fatalf("scene %s is in %s and %s", parts[0].Key, other, set.Name)
			}
			side[parts[0].Key] = set.Name
			if len(s.Answers) != 10 || s.Reference != vqa.Majority(s.Answers) {
				t.Fatalf("%s: reference %q of answers %q", s.Name, s.Reference, s.Answers)
			}
			for _, c := range s.Completions {
				if want := vqa.Accuracy(c.Text, s.Answers, false); c.Reward-want > 1e-12 || want-c.Reward > 1e-12 {
					t.Fatalf("%s: %q is worth %v, want the VQA accuracy %v", s.Name, c.Text, c.Reward, want)
				}
			}
		}
	}
	first, err := b.Eval.Sample(0)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Eval.Sample(0)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := first.Messages[0].Parts[0].Picture()
	if err != nil {
		t.Fatal(err)
	}
	same, err := again.Messages[0].Parts[0].Picture()
	if err != nil || !reflect.DeepEqual(picture, same) || picture.Bounds().Dx() != shapes.ImageSize {
		t.Errorf("the picture of a sample is not always the same (%v)", err)
	}
}

func BenchmarkShapesSample(b *testing.B) {
	bundle := Shapes(shapes.DefaultOptions(), DefaultOptions())
	for i := 0; b.Loop(); i++ {
		if _, err := bundle.Train.Sample(i % bundle.Train.Len()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShapesPicture(b *testing.B) {
	bundle := Shapes(shapes.DefaultOptions(), DefaultOptions())
	for i := 0; b.Loop(); i++ {
		s, err := bundle.Train.Sample(i % bundle.Train.Len())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Messages[0].Parts[0].Picture(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestShapesDemonstrations(t *testing.T) {
	sizes := shapes.DefaultOptions()
	sizes.TrainQueries, sizes.ValQueries, sizes.DevQueries = 90, 5, 5
	opt := DefaultOptions()
	n := 30
	opt.Demos, opt.Captions = &n, true
	b := Shapes(sizes, opt)
	if b.Demos.Len() != 60 || b.Train.Len() != 90 { // three questions a scene, and its description
		t.Fatalf("%d demonstrations of %d training samples, want 60 of 90", b.Demos.Len(), b.Train.Len())
	}
	question, err := b.Demos.Sample(27)
	if err != nil {
		t.Fatal(err)
	}
	caption, err := b.Demos.Sample(39)
	if err != nil {
		t.Fatal(err)
	}
	if caption.Messages[0].Parts[0].Key != question.Messages[0].Parts[0].Key || caption.Reference == "" || caption.ID == question.ID {
		t.Errorf("the tenth caption %+v is not about the scene of the last question %+v", caption, question)
	}
}
