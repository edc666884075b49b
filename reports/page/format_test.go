package page

import "testing"

// The decimals are those that the interval or the error leaves, whatever the size of the scores, and an end beyond 0 does not read as 0.
func TestNumbersHaveTheDigitsOfTheirInterval(t *testing.T) {
	estimate := func(mean, low, high float64) string {
		m, l, h := Estimate(mean, low, high, Fixed)
		return m + " [" + l + ", " + h + "]"
	}
	for _, tc := range []struct{ got, want string }{
		{estimate(0.01913, 0.0105, 0.0279), "+0.0191 [+0.0105, +0.0279]"},
		{estimate(-0.0061, -0.0441, 0.0319), "−0.006 [−0.044, +0.032]"},
		{estimate(0.000271, 0.000013, 0.000529), "+0.00027 [+0.00001, +0.00053]"},  // better
		{estimate(0.000271, -0.000013, 0.000555), "+0.00027 [−0.00001, +0.00056]"}, // not separable
		{estimate(0.01, 0.00004, 0.02), "+0.01000 [+0.00004, +0.02000]"},
		{estimate(0.01, 0, 0.02), "+0.010 [+0.000, +0.020]"},
		{estimate(31.2, 12.4, 50), "+31 [+12, +50]"},
		{estimate(-0.027, -1, 1), "−0.03 [−1.00, +1.00]"}, {estimate(0.00001, -1, 1), "+0.0 [−1.0, +1.0]"},
		{estimate(-0.157, -29.2, 28.9), "−0.2 [−29.2, +28.9]"}, // of two seeds
		{estimate(0.5, 0.5, 0.5), "+0.5000 [+0.5000, +0.5000]"}, {estimate(1, 1, 1), "+1.000 [+1.000, +1.000]"},
		{estimate(0.0008085, 0.0008085, 0.0008085), "+0.0008085 [+0.0008085, +0.0008085]"},
		{estimate(12345, 12345, 12345), "+12345 [+12345, +12345]"},
		{MeanSE(0.03601, 0.00021), "0.03601 ± 0.00021"}, {MeanSE(-0.4816, 0.0998), "−0.48 ± 0.10"}, {MeanSE(1, 0), "1.000 ± 0"},
		{Score(0.03601, 0.0071), "0.0360"}, {Score(0.03601, 0), "0.03601"}, {Score(0.1, 2e-17), "0.1000"},
		{MeanSE(0.1, 2e-17), "0.1000 ± 0"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", -1234: "-1,234", 999: "999", 1000: "1,000", 443757: "443,757", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
