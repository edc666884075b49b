package vl

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
)

// Vision is the shape of the vision tower. Keys of config.json that have no field of that name are read by its kind.
type Vision struct {
	Depth           int     `json:"depth"`
	Hidden          int     `json:"hidden_size"`
	Intermediate    int     `json:"intermediate_size"`
	Heads           int     `json:"num_heads"`
	Channels        int     `json:"in_chans"`
	Out             int     `json:"out_hidden_size"` // width of the merged vectors: the decoder's
	Patch           int     `json:"patch_size"`
	TemporalPatch   int     `json:"temporal_patch_size"`
	Merge           int     `json:"spatial_merge_size"` // patches along a side of a merged cell
	Window          int     `json:"window_size"`        // pixels along a side of a window; 0: no block has windows
	FullBlocks      []int   `json:"fullatt_block_indexes"`
	TokensPerSecond float64 `json:"tokens_per_second"` // 0: frame pairs count
	Activation      string  `json:"hidden_act"`
	RopeTheta       float64 `json:"-"` // of rope_parameters
	Side            int     `json:"-"` // of the square table of places that is added to patches (Qwen3-VL); 0: none
	Deep            []int   `json:"-"` // blocks whose rows, merged, are added behind the first layers of the decoder (Qwen3-VL)

	names towerNames
}

// towerNames are what a kind of tower calls its parts, and which of them it has.
type towerNames struct {
	class               string  // transformers' class of vision_config
	plain               bool    // norms are LayerNorm, the MLP has no gate, no block has windows
	embeds              bool    // embed_dim is the tower's width, hidden_size the decoder's (Qwen2-VL)
	places              bool    // a table of places, a bias of the patches, vectors for the decoder's first layers; no videos (Qwen3-VL)
	up, down            string  // of the MLP
	norm, first, second string  // of the merger
	missing             *Vision // what the class takes for keys that are left out
	foreign             []string
}

// towers are the kinds of tower by model_type.
func towers() map[string]towerNames {
	return map[string]towerNames{
		"qwen2_5_vl": {class: "Qwen2_5_VLVisionConfig", up: "up_proj", down: "down_proj", norm: "ln_q", first: "mlp.0", second: "mlp.2",
			missing: &Vision{Depth: 32, Hidden: 3584, Intermediate: 3420, Patch: 14, Activation: "silu", Window: 112, TokensPerSecond: 4},
			foreign: []string{"embed_dim", "mlp_ratio", "num_position_embeddings", "deepstack_visual_indexes"}},
		"qwen2_vl": {class: "Qwen2VLVisionConfig", plain: true, embeds: true, up: "fc1", down: "fc2", norm: "ln_q", first: "mlp.0",
			second: "mlp.2", missing: &Vision{Depth: 32, Hidden: 3584, Patch: 14, Activation: "quick_gelu"},
			foreign: []string{"in_chans", "out_hidden_size", "intermediate_size", "window_size", "fullatt_block_indexes", "tokens_per_second",
				"num_position_embeddings", "deepstack_visual_indexes"}},
		"qwen3_vl": {class: "Qwen3VLVisionConfig", plain: true, places: true, up: "linear_fc1", down: "linear_fc2",
			norm: "norm", first: "linear_fc1", second: "linear_fc2",
			missing: &Vision{Depth: 27, Hidden: 1152, Intermediate: 4304, Patch: 16, Activation: "gelu_pytorch_tanh", Out: 3584},
			foreign: []string{"in_chans", "window_size", "fullatt_block_indexes", "tokens_per_second", "embed_dim", "mlp_ratio"}},
	}
}

// visionFile are the keys of vision_config beside those of Vision.
type visionFile struct {
	Rope *ropeFile `json:"rope_parameters"`

	Older int `json:"in_channels"` // of in_chans
	// Qwen2-VL: hidden_size is the decoder's
	Embed *int     `json:"embed_dim"`
	Ratio *float64 `json:"mlp_ratio"`
	// Qwen3-VL
	Places *int  `json:"num_position_embeddings"`
	Deep   []int `json:"deepstack_visual_indexes"`
}

// keys says what becomes of the keys of vision_config.
func (n towerNames) keys() hffolder.Keys {
	k := hffolder.Keys{
		Of: "vision_config of config.json", Class: n.class,
		Used: hffolder.Tags(Vision{}, visionFile{}),
		Idle: []string{"initializer_range", "spatial_patch_size"},
		Want: map[string][]string{"is_encoder_decoder": {"false"}, "head_dim": nil, "rope_theta": {"10000"}, "rope_scaling": nil,
			"partial_rotary_factor": {"1"}},
		Alias: map[string]string{"num_attention_heads": "num_heads", "num_hidden_layers": "depth"},
	}
	k.Used = slices.DeleteFunc(k.Used, func(key string) bool { return slices.Contains(n.foreign, key) })
	return k.EveryConfig()
}

// vision reads vision_config over the defaults of its class.
func (c *Config) vision(kind string, raw []byte) error {
	beside := visionFile{Older: 3}
	if err := jsonwords.Unmarshal(raw, &beside); err != nil {
		return err
	}
	of := towers()[kind]
	v := of.missing
	v.names, v.Heads, v.Channels, v.TemporalPatch, v.Merge, v.RopeTheta = of, 16, beside.Older, 2, 2, 10000
	v.Out = cmp.Or(v.Out, c.Hidden)
	c.Vision = v
	if err := jsonwords.Unmarshal(raw, v); err != nil {
		return err
	}
	if of.plain { // no keys of this kind
		v.Window, v.TokensPerSecond, v.FullBlocks, v.Channels = 0, 0, nil, beside.Older
	} else if v.FullBlocks == nil {
		v.FullBlocks = []int{7, 15, 23, 31}
	}
	if of.embeds {
		v.Out, v.Hidden = v.Hidden, option.Or(beside.Embed, 1280)
		v.Intermediate = int(float64(v.Hidden) * option.Or(beside.Ratio, 4))
	}
	if of.places {
		if err := v.readPlaces(&beside, c.Layers); err != nil {
			return err
		}
	}
	if r := beside.Rope; r != nil {
		if kind := cmp.Or(r.NewType, r.Type, "axial"); kind != "axial" && kind != "default" {
			return fmt.Errorf("rope_parameters: type %q is not supported, want axial", kind)
		}
		v.RopeTheta = option.Or(r.Theta, v.RopeTheta)
	}
	return torchx.KnownActivation("hidden_act", v.Activation)
}

// readPlaces reads the side of the table of places and the blocks whose vectors go to the decoder's first layers.
func (v *Vision) readPlaces(file *visionFile, layers int) error {
	places := option.Or(file.Places, 2304)
	v.Side = int(math.Sqrt(float64(max(places, 0))))
	if places < 1 || v.Side*v.Side != places {
		return fmt.Errorf("num_position_embeddings = %d is not supported, want a square", places)
	}
	if v.Deep = file.Deep; v.Deep == nil {
		v.Deep = []int{8, 16, 24}
	}
	if len(v.Deep) >= layers {
		return fmt.Errorf("deepstack_visual_indexes names %d blocks, want fewer than num_hidden_layers = %d", len(v.Deep), layers)
	}
	for i, at := range v.Deep {
		if at < 0 || at >= v.Depth || i > 0 && at <= v.Deep[i-1] {
			return fmt.Errorf("deepstack_visual_indexes = %v, want rising numbers below depth = %d", v.Deep, v.Depth)
		}
	}
	return nil
}

// corners returns the four entries of the table of places around each patch, and their shares of it: the square table stretched over
// the picture, between its corners (bilinear), [R] each, in the order of the patches. places are those of their layout.
func (v *Vision) corners(grids []grid, places [][2]int) (at [4][]int64, share [4][]float32) {
	axis := func(i, n int) (low, high int, part float32) {
		x := float32(i*(v.Side-1)) / float32(max(n-1, 1))
		low = min(int(x), v.Side-1)
		return low, min(low+1, v.Side-1), x - float32(low)
	}
	row := 0
	for _, g := range grids {
		for range g.t * g.h * g.w {
			p := places[row]
			row++
			top, bottom, down := axis(p[0], g.h)
			left, right, over := axis(p[1], g.w)
			for k, entry := range [4]int{top*v.Side + left, top*v.Side + right, bottom*v.Side + left, bottom*v.Side + right} {
				at[k] = append(at[k], int64(entry))
			}
			for k, part := range [4]float32{(1 - down) * (1 - over), (1 - down) * over, down * (1 - over), down * over} {
				share[k] = append(share[k], part)
			}
		}
	}
	return at, share
}
