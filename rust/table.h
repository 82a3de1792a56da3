// The C interface of the Parquet reader in rust/: rows of a table as JSON, and the media in its binary columns.
//
// A row's text is one JSON object with the columns in the table's order. A binary column, a struct of binary `bytes`
// and a text `path` (Image, Audio and Video of Hugging Face `datasets`), or a list of either has the names of its media
// in their place: "image.0.jpg" is the column, the position in the list (0 without one), and the suffix of `path` if
// it has one. A null is null. Other binary values inside nested columns are null, too.
//
// A column of a row group that is small, or has few pages, is kept as long as rows of that group are asked for. Of others
// a value costs its pages; those before it are skipped, so that ascending rows are cheapest. Texts are read up to the
// row; a few MiB of them are kept.
//
// Ownership: a table is the caller's, to be given to its free. `source` must outlive it. What a call returns is
// valid until the next call with the same table.
// Thread safety: none; one table, one thread at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rust/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EvenkeelTable EvenkeelTable;

enum {
  EVENKEEL_TABLE_OK = 0,
  EVENKEEL_TABLE_DAMAGED = 1,   // not a table, or a damaged one
  EVENKEEL_TABLE_PANICKED = 2,  // the library gave up: damaged, too
  EVENKEEL_TABLE_SOURCE = 3,    // the source failed
};

// Fills `out` from `offset` of the file; 0: done.
typedef int32_t (*EvenkeelReadAt)(void* source, uint64_t offset, uint8_t* out, size_t num_bytes);

// Reads the footer of a file of `num_bytes` bytes.
int32_t evenkeel_table_open(void* source, EvenkeelReadAt read_at, uint64_t num_bytes, EvenkeelTable** out);
void evenkeel_table_free(EvenkeelTable* table);
uint64_t evenkeel_table_num_rows(const EvenkeelTable* table);

// The rows of a row's group; none if there is no such row.
void evenkeel_table_group_of(const EvenkeelTable* table, uint64_t row, uint64_t* first, uint64_t* end);
// About the memory that the table keeps.
uint64_t evenkeel_table_kept_bytes(const EvenkeelTable* table);

int32_t evenkeel_table_text(EvenkeelTable* table, uint64_t row, EvenkeelText* out);

// A medium of a row: the name that the text has, and its place for evenkeel_table_value.
typedef struct EvenkeelTableMedium {
  EvenkeelText name;
  uint32_t column;
  uint32_t element;
  uint64_t num_bytes;
} EvenkeelTableMedium;

// The media of a row that have bytes, in the order of their names in the text.
int32_t evenkeel_table_media(EvenkeelTable* table, uint64_t row, const EvenkeelTableMedium** out,
                             size_t* num_media);
// DAMAGED also: no such value.
int32_t evenkeel_table_value(EvenkeelTable* table, uint64_t row, uint32_t column, uint32_t element,
                             EvenkeelText* out);

// What the last call on this thread that was not OK said; valid until the next one.
EvenkeelText evenkeel_table_last_error(void);

#ifdef __cplusplus
}
#endif
