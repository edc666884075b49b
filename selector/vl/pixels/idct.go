package pixels

// idct is the inverse cosine transform of libjpeg (jidctint.c, the method of Loeffler, Ligtenberg and Moschytz 1989 in 13-bit fixed
// point, columns first), of a block of coefficients times their quantisation, into 8×8 bytes.
func idct(coefs *[64]int16, quant *[64]int32, to []uint8, stride int) {
	var work [64]int32
	for x := range 8 {
		c := (*[57]int16)(coefs[x:]) // the column is every eighth
		if c[8]|c[16]|c[24]|c[32]|c[40]|c[48]|c[56] == 0 {
			v := int32(c[0]) * quant[x] << 2 // two bits more than a sample has
			for y := x; y < 64; y += 8 {
				work[y] = v
			}
			continue
		}
		q := (*[57]int32)(quant[x:])
		out := butterfly(int32(c[0])*q[0], int32(c[8])*q[8], int32(c[16])*q[16], int32(c[24])*q[24], int32(c[32])*q[32],
			int32(c[40])*q[40], int32(c[48])*q[48], int32(c[56])*q[56])
		for y, v := range out {
			work[8*y+x] = (v + 1<<10) >> 11
		}
	}
	for y := range 8 {
		r := (*[8]int32)(work[8*y:])
		line := (*[8]uint8)(to[y*stride:])
		for x, v := range butterfly(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) {
			line[x] = clamp(int((v+1<<17)>>18) + 128)
		}
	}
}

// butterfly transforms eight values, times 2¹³·√8.
func butterfly(c0, c1, c2, c3, c4, c5, c6, c7 int32) [8]int32 {
	z := (c2 + c6) * 4433 // 0.541196100
	even2, even3 := z-c6*15137, z+c2*6270
	sum, difference := (c0+c4)<<13, (c0-c4)<<13
	e0, e1, e2, e3 := sum+even3, difference+even2, difference-even2, sum-even3

	t0, t1, t2, t3 := c7, c5, c3, c1
	z5 := (t0 + t2 + t1 + t3) * 9633                                                // 1.175875602
	z1, z2 := (t0+t3)*-7373, (t1+t2)*-20995                                         // 0.899976223, 2.562915447
	z3, z4 := (t0+t2)*-16069+z5, (t1+t3)*-3196+z5                                   // 1.961570560, 0.390180644
	o3, o2, o1, o0 := t0*2446+z1+z3, t1*16819+z2+z4, t2*25172+z2+z3, t3*12299+z1+z4 // 0.298631336 …
	return [8]int32{e0 + o0, e1 + o1, e2 + o2, e3 + o3, e3 - o3, e2 - o2, e1 - o1, e0 - o0}
}
