package pixels

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// VideoFile returns the patches of a video file: its frames are sampled through an installed ffmpeg
// (and ffprobe), each resized as it comes, within the bounds of s and of c.
func (c Config) VideoFile(ctx context.Context, path string, s Sampling) (Patches, error) {
	p, err := c.videoFile(ctx, path, s)
	if err != nil {
		return Patches{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (c Config) videoFile(ctx context.Context, path string, s Sampling) (Patches, error) {
	if f, err := regular.Open(path); err != nil {
		return Patches{}, errors.Unwrap(err)
	} else {
		f.Close()
	}
	total, rate, err := probe(ctx, path)
	if err != nil {
		return Patches{}, err
	}
	numbers, fps, err := s.Frames(total, rate)
	if err != nil {
		return Patches{}, err
	}
	c = s.Bounds(c, len(numbers))
	var frames []*RGB
	var h, w int
	err = extract(ctx, path, numbers, func(frame *RGB) (err error) {
		if len(frames) == 0 {
			if h, w, err = c.size(frame); err != nil {
				return err
			}
		}
		frames = append(frames, frame.resizeFrame(w, h)) // the frame as it was may be much larger
		return nil
	})
	if err != nil {
		return Patches{}, err
	}
	for len(frames) < len(numbers) { // packets that gave no frame: the end of a damaged file stands still
		frames = append(frames, frames[len(frames)-1])
	}
	p := c.patches(frames)
	p.SecondsPerGrid = c.secondsPerGrid(fps)
	return p, nil
}

// probe returns the number of frames and the rate of the first video stream. Packets are counted, not
// decoded: the header's number of frames is missing in some containers and wrong in others.
func probe(ctx context.Context, path string) (total int, rate float64, err error) {
	cmd, said, err := tool(ctx, "ffprobe", "-v", "error", "-select_streams", "v:0", "-count_packets",
		"-show_entries", "stream=nb_read_packets,avg_frame_rate,r_frame_rate", "-of", "json", path)
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("ffprobe: %w: %s", err, strings.TrimSpace(said.String()))
	}
	var info struct {
		Streams []struct {
			Packets string `json:"nb_read_packets"`
			Average string `json:"avg_frame_rate"`
			Nominal string `json:"r_frame_rate"`
		}
	}
	if err := jsonwords.Unmarshal(out, &info); err != nil {
		return 0, 0, fmt.Errorf("ffprobe: %w", err)
	}
	if len(info.Streams) == 0 {
		return 0, 0, errors.New("the file has no video")
	}
	stream := info.Streams[0]
	if total, err = strconv.Atoi(stream.Packets); err != nil {
		return 0, 0, fmt.Errorf("ffprobe: nb_read_packets %q, want a number", stream.Packets)
	}
	for _, r := range []string{stream.Average, stream.Nominal} {
		if rate = ratio(r); rate > 0 {
			return total, rate, nil
		}
	}
	return 0, 0, fmt.Errorf("ffprobe: avg_frame_rate %q, want a rate", stream.Average)
}

// ratio reads "30000/1001"; 0 for other text.
func ratio(s string) float64 {
	a, b, _ := strings.Cut(s, "/")
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if err != nil || err2 != nil || y == 0 {
		return 0
	}
	return x / y
}

// extract calls each with the frames of the given numbers, which ascend: one at least. The frames come
// as PPM images, which know their size (a rotated video swaps its sides); the rate is set so that none
// is doubled or left out on the way.
func extract(ctx context.Context, path string, numbers []int, each func(*RGB) error) error {
	filter := selectFrames(numbers) + ",setpts=N/(25*TB)"
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends ffmpeg where a frame is refused
	cmd, said, err := tool(ctx, "ffmpeg", "-v", "error", "-nostdin", "-i", path, "-map", "0:v:0", "-vf", filter, "-r", "25",
		"-frames:v", strconv.Itoa(len(numbers)), "-pix_fmt", "rgb24", "-c:v", "ppm", "-f", "image2pipe", "-")
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("ffmpeg: %w", err)
	}
	frames := 0
	var refused error
	for r := bufio.NewReaderSize(out, 1<<20); refused == nil; frames++ {
		img, err := readPPM(r)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = each(img)
		}
		if err != nil {
			refused = fmt.Errorf("ffmpeg: frame %d: %w", frames+1, err)
		}
	}
	if refused != nil {
		stop()
	}
	if err := cmd.Wait(); err != nil && refused == nil {
		return fmt.Errorf("ffmpeg: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if refused == nil && frames == 0 {
		return errors.New("ffmpeg: no frame could be decoded")
	}
	return refused
}

// selectFrames returns the filters that let the frames of the given numbers through. ffmpeg's expressions may add a
// hundred terms and no more, so a filter chooses among a stretch of the video and lets the others by. The last stretch
// comes first: a filter counts what reaches it, and only frames after its own stretch are gone by then.
func selectFrames(numbers []int) string {
	const most = 50 // terms of one expression
	var filters []string
	for from := (len(numbers) - 1) / most * most; from >= 0; from -= most {
		to := min(from+most, len(numbers))
		var terms []string
		if from > 0 {
			terms = append(terms, fmt.Sprintf("lt(n,%d)", numbers[from]))
		}
		if to < len(numbers) {
			terms = append(terms, fmt.Sprintf("gte(n,%d)", numbers[to]))
		}
		terms = append(terms, list.Map(numbers[from:to], func(n int) string { return fmt.Sprintf("eq(n,%d)", n) })...)
		filters = append(filters, "select='"+strings.Join(terms, "+")+"'")
	}
	return strings.Join(filters, ",")
}

// tool prepares one of ffmpeg's programs; what it says goes into said.
func tool(ctx context.Context, name string, args ...string) (cmd *exec.Cmd, said *bytes.Buffer, err error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a video file wants %s, which is not installed (ffmpeg.org); a list or a folder of frames does "+
			"without", name)
	}
	said = new(bytes.Buffer)
	cmd = exec.CommandContext(ctx, program, args...)
	cmd.Stderr = said
	return cmd, said, nil
}

// readPPM reads one binary PPM image of 8 bits; io.EOF at the end of the stream.
func readPPM(r *bufio.Reader) (*RGB, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	var width, height, most int
	if _, err := fmt.Fscanf(r, "P6\n%d %d\n%d\n", &width, &height, &most); err != nil {
		return nil, fmt.Errorf("bad PPM header: %w", err)
	}
	if most != 255 || width < 1 || height < 1 || width > maxPixels/height {
		return nil, fmt.Errorf("PPM of %d×%d, maximum %d: want 8 bits and at most %d pixels", width, height, most, maxPixels)
	}
	m := newRGB(width, height)
	if _, err := io.ReadFull(r, m.Pix); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return m, nil
}
