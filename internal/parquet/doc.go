// Package parquet reads columns of text and whole numbers from Parquet files, row by row and on demand, and writes tables.
//
//	f, err := parquet.Open("train.parquet")
//	col, err := f.Column("document")
//	text, ok, err := col.Text(7)           // ok is false for null
//
// It reads what data sets of texts are made of: flat columns, optional or required, plain, dictionary and delta
// encoded, in pages of either version, uncompressed or in Snappy, gzip or Zstandard. Nested and repeated
// columns are left out, other codecs are refused by name. A file is found out about by its footer and page
// headers; a page is decoded when a row of it is asked for, and the last few stay in memory.
//
// Write writes tables of numbers and texts in the plainest way that the format has.
//
// The metadata are decoded by parquet-go's Thrift. Its reader of files, as any general one, seeks only where there is a page
// index, which pyarrow and pandas do not write, and a damaged footer ends its process: docs/log/engineering.md has the
// measurements. Source: the format's specification, github.com/apache/parquet-format.
package parquet
