//! The C interface that rust/table.h declares, over the `parquet` crate without its Arrow half: column readers that
//! skip pages for media, the record reader for everything else.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{self, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{get_typed_column_reader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use crate::{caught, free, last_error, EvenkeelText, OK, REFUSED};

/// Code of table.h, in addition to those of the other headers.
const SOURCE: i32 = 3;

/// Page headers are read through a buffer of this size.
const HEADER_BYTES: usize = 4096;
/// Empty pages of a column chunk that may follow each other.
const EMPTY_PAGES: usize = 16;
/// A row group's column that is read as a whole, whatever its pages.
const SMALL_GROUP_BYTES: i64 = 4 << 20;
/// One that never is.
const MAX_KEPT_BYTES: i64 = 1 << 30;
/// Texts of rows that are kept behind the latest one.
const KEPT_TEXT_BYTES: usize = 4 << 20;
/// A suffix of a path is kept if it looks like one.
const MAX_SUFFIX: usize = 8;

type ReadAt = extern "C" fn(*mut c_void, u64, *mut u8, usize) -> i32;

/// The caller's file.
#[derive(Clone)]
struct Source {
    source: *mut c_void,
    read_at: ReadAt,
    num_bytes: u64,
    failed: Arc<AtomicBool>,
}

// The table belongs to one thread at a time, and so does its source.
unsafe impl Send for Source {}
unsafe impl Sync for Source {}

impl Source {
    fn fill(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset > self.num_bytes || out.len() as u64 > self.num_bytes - offset {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} bytes at byte {offset} are beyond the end", out.len())));
        }
        if (self.read_at)(self.source, offset, out.as_mut_ptr(), out.len()) != 0 {
            self.failed.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the source failed"));
        }
        Ok(())
    }
}

struct SourceRead {
    source: Source,
    at: u64,
}

impl Read for SourceRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.source.num_bytes.saturating_sub(self.at);
        let count = left.min(out.len() as u64) as usize;
        self.source.fill(self.at, &mut out[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.num_bytes
    }
}

impl ChunkReader for Source {
    type T = BufReader<SourceRead>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::with_capacity(HEADER_BYTES, SourceRead { source: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // Checked before the memory is allocated: lengths come from the file.
        if start > self.num_bytes || length as u64 > self.num_bytes - start {
            return Err(ParquetError::EOF(format!("{length} bytes at byte {start} are beyond the end")));
        }
        let mut out = vec![0u8; length];
        self.fill(start, &mut out).map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Bytes::from(out))
    }
}

type Elements = Vec<Option<ByteArray>>;

/// A leaf with byte arrays, at most one in a list: the elements of a row at a time.
///
/// Writers often make one page of a whole row group, and a page is decompressed as a whole. The values of such a group
/// are kept, as views of its page; of groups with many pages only the pages of a row are read.
struct Leaf {
    index: usize,
    max_def: i16,
    /// The definition level from which on a list has an element; 0 without a list.
    element_def: i16,
    /// The definition level from which on the group around the leaf is there.
    group_def: i16,
    /// Row group, row within it of the next row, and its pages.
    reader: Option<(usize, u64, ColumnReaderImpl<ByteArrayType>)>,
    kept: Option<Kept>,
    /// The elements of the latest row: a null has no bytes, and is not there if the group around it is null.
    row: Option<u64>,
    elements: Elements,
    is_there: Vec<bool>,
}

/// The elements of all rows of a row group.
struct Kept {
    group: usize,
    /// Where the elements of each row begin, and the end.
    begins: Vec<usize>,
    elements: Elements,
    is_there: Vec<bool>,
}

type Levels = (Vec<i16>, Vec<i16>, Vec<ByteArray>);

impl Leaf {
    fn ends(&self, row: u64) -> ParquetError {
        ParquetError::EOF(format!("column {} ends before row {row}", self.index))
    }

    fn open(&self, file: &SerializedFileReader<Source>, group: usize) -> Result<ColumnReaderImpl<ByteArrayType>, ParquetError> {
        Ok(get_typed_column_reader::<ByteArrayType>(file.get_row_group(group)?.get_column_reader(self.index)?))
    }

    /// The next `count` records with definition and repetition levels of their values.
    ///
    /// The library stops at an empty page, which some writers make: a call that reads nothing may be followed by one
    /// that does. A record that only an empty page follows has ended, though the library does not count it.
    fn next_records(&self, reader: &mut ColumnReaderImpl<ByteArrayType>, count: usize) -> Result<Levels, ParquetError> {
        let (mut defs, mut reps, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut records, mut attempts) = (0, 0);
        while records < count && attempts < EMPTY_PAGES {
            let (more, _, levels) = reader.read_records(count - records, Some(&mut defs), Some(&mut reps), &mut values)?;
            records += more;
            attempts = if levels == 0 { attempts + 1 } else { 0 };
        }
        if defs.is_empty() {
            defs.resize(values.len(), self.max_def); // a required column has no levels
        }
        Ok((defs, reps, values))
    }

    /// Whether the first page has a good part of the group, or the whole group is small.
    fn is_one_page(&self, file: &SerializedFileReader<Source>, group: usize) -> Result<bool, ParquetError> {
        let reader = file.get_row_group(group)?;
        let chunk = reader.metadata().column(self.index);
        let bytes = chunk.uncompressed_size();
        if bytes > MAX_KEPT_BYTES {
            return Ok(false);
        }
        if bytes <= SMALL_GROUP_BYTES {
            return Ok(true);
        }
        let mut pages = reader.get_column_page_reader(self.index)?;
        while let Some(page) = pages.peek_next_page()? {
            if !page.is_dict {
                let values = page.num_levels.or(page.num_rows).unwrap_or(0) as i64;
                return Ok(values >= chunk.num_values() / 4);
            }
            pages.skip_next_page()?;
        }
        Ok(false)
    }

    fn keep(&mut self, file: &SerializedFileReader<Source>, group: usize) -> Result<(), ParquetError> {
        let rows = file.metadata().row_group(group).num_rows() as usize;
        let mut reader = self.open(file, group)?;
        let (defs, reps, values) = self.next_records(&mut reader, rows)?;
        let mut kept = Kept { group, begins: Vec::new(), elements: Vec::new(), is_there: Vec::new() };
        let mut values = values.into_iter();
        for (i, def) in defs.into_iter().enumerate() {
            if reps.get(i).is_none_or(|rep| *rep == 0) {
                kept.begins.push(kept.elements.len());
            }
            self.add(def, &mut values, &mut kept.elements, &mut kept.is_there);
        }
        if kept.begins.len() != rows {
            return Err(self.ends(kept.begins.len() as u64));
        }
        kept.begins.push(kept.elements.len());
        self.kept = Some(kept);
        Ok(())
    }

    fn add(&self, def: i16, values: &mut impl Iterator<Item = ByteArray>, elements: &mut Elements, is_there: &mut Vec<bool>) {
        if def < self.element_def {
            return;
        }
        elements.push(if def == self.max_def { values.next() } else { None });
        is_there.push(def >= self.group_def);
    }

    /// Reads the elements of row `row`, which is `in_group` of row group `group`.
    fn read(&mut self, file: &SerializedFileReader<Source>, row: u64, group: usize, in_group: u64) -> Result<(), ParquetError> {
        if self.row == Some(row) {
            return Ok(());
        }
        self.row = None;
        self.elements.clear();
        self.is_there.clear();
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.group == group);
        let is_open = self.reader.as_ref().is_some_and(|(of, ..)| *of == group);
        if !is_kept && !is_open {
            (self.kept, self.reader) = (None, None);
            if self.is_one_page(file, group)? {
                self.keep(file, group)?;
            }
        }
        if let Some(kept) = &self.kept {
            let elements = kept.begins[in_group as usize]..kept.begins[in_group as usize + 1];
            self.elements.extend_from_slice(&kept.elements[elements.clone()]);
            self.is_there.extend_from_slice(&kept.is_there[elements]);
            self.row = Some(row);
            return Ok(());
        }
        let (next, mut reader) = match self.reader.take() {
            Some((_, next, reader)) if next <= in_group => (next, reader),
            _ => (0, self.open(file, group)?),
        };
        let skipped = in_group - next;
        if skipped > 0 && reader.skip_records(skipped as usize)? as u64 != skipped {
            return Err(self.ends(row));
        }
        let (defs, _, values) = self.next_records(&mut reader, 1)?;
        if defs.is_empty() {
            return Err(self.ends(row));
        }
        self.reader = Some((group, in_group + 1, reader));
        let (mut elements, mut is_there) = (Vec::new(), Vec::new());
        let mut values = values.into_iter();
        for def in defs {
            self.add(def, &mut values, &mut elements, &mut is_there);
        }
        (self.elements, self.is_there) = (elements, is_there);
        self.row = Some(row);
        Ok(())
    }

    /// Bytes of the kept group, or about those of an open page.
    fn kept_bytes(&self, file: &SerializedFileReader<Source>) -> i64 {
        match (&self.kept, &self.reader) {
            (Some(kept), _) => file.metadata().row_group(kept.group).column(self.index).uncompressed_size().max(0),
            (None, Some(_)) => SMALL_GROUP_BYTES,
            (None, None) => 0,
        }
    }
}

/// A column of media.
struct Media {
    name: String,
    is_list: bool,
    bytes: Leaf,
    path: Option<Leaf>,
}

impl Media {
    /// The leaf from which the number of elements is read: the one with the fewer bytes.
    fn naming(&mut self) -> &mut Leaf {
        self.path.as_mut().unwrap_or(&mut self.bytes)
    }

    /// Names of the elements that `naming` has read; None: null.
    fn names(&mut self) -> Vec<Option<String>> {
        let name = self.name.clone();
        let has_path = self.path.is_some();
        let leaf = self.naming();
        let mut names = Vec::with_capacity(leaf.elements.len());
        for (i, element) in leaf.elements.iter().enumerate() {
            let suffix = element.as_ref().filter(|_| has_path).and_then(|path| suffix_of(path.data())).unwrap_or_default();
            names.push(leaf.is_there[i].then(|| format!("{name}.{i}{suffix}")));
        }
        names
    }
}

/// The suffix of a path with its dot, in lower case.
fn suffix_of(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let suffix = &name[dot + 1..];
    let is_one = !suffix.is_empty() && suffix.len() <= MAX_SUFFIX && suffix.iter().all(u8::is_ascii_alphanumeric);
    is_one.then(|| format!(".{}", String::from_utf8_lossy(suffix).to_ascii_lowercase()))
}

/// The columns that are not media, row after row.
struct Texts {
    schema: Option<SchemaDescPtr>,
    /// Row group, row within it of the next row, and the rows.
    rows: Option<(usize, u64, ReaderIter)>,
    kept: VecDeque<(u64, Vec<(String, String)>)>,
    kept_bytes: usize,
}

impl Texts {
    /// The members of a row as pairs of name and JSON.
    fn read(&mut self, file: &SerializedFileReader<Source>, row: u64, group: usize, in_group: u64) -> Result<Vec<(String, String)>, ParquetError> {
        let Some(schema) = self.schema.clone() else { return Ok(Vec::new()) };
        if let Some((_, members)) = self.kept.iter().find(|(kept, _)| *kept == row) {
            return Ok(members.clone());
        }
        let (mut next, mut rows) = match self.rows.take() {
            Some((of, next, rows)) if of == group && next <= in_group => (next, rows),
            _ => {
                self.kept.clear();
                self.kept_bytes = 0;
                (0, TreeBuilder::new().as_iter(schema, &*file.get_row_group(group)?)?)
            }
        };
        loop {
            let found = rows.next().ok_or_else(|| ParquetError::EOF(format!("the texts end before row {row}")))??;
            let members: Vec<(String, String)> = found.into_columns().into_iter().map(|(name, field)| (name, json_of(&field))).collect();
            self.kept_bytes += members.iter().map(|(name, json)| name.len() + json.len()).sum::<usize>();
            self.kept.push_back((row - in_group + next, members));
            while self.kept_bytes > KEPT_TEXT_BYTES && self.kept.len() > 1 {
                let (_, oldest) = self.kept.pop_front().expect("there are two");
                self.kept_bytes -= oldest.iter().map(|(name, json)| name.len() + json.len()).sum::<usize>();
            }
            next += 1;
            if next > in_group {
                break;
            }
        }
        self.rows = Some((group, next, rows));
        Ok(self.kept.back().expect("just added").1.clone())
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// As Python writes what JSON has no word for.
fn float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.into()
    } else {
        value.to_string()
    }
}

fn object(row: &Row) -> String {
    let members = row.get_column_iter().map(|(name, field)| format!("{}: {}", quoted(name), json_of(field)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

fn json_of(field: &Field) -> String {
    match field {
        Field::Null | Field::Bytes(_) => "null".into(),
        Field::Bool(value) => value.to_string(),
        Field::Byte(value) => value.to_string(),
        Field::Short(value) => value.to_string(),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => value.to_string(),
        Field::Long(value) | Field::TimeMicros(value) | Field::TimestampMillis(value) | Field::TimestampMicros(value) => value.to_string(),
        Field::UByte(value) => value.to_string(),
        Field::UShort(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) => value.to_string(),
        Field::Float16(value) => float(value.to_f64()),
        Field::Float(value) => float(f64::from(*value)),
        Field::Double(value) => float(*value),
        Field::Decimal(_) => quoted(&field.to_string()),
        Field::Str(text) => quoted(text),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => format!("[{}]", list.elements().iter().map(json_of).collect::<Vec<_>>().join(", ")),
        Field::MapInternal(map) => {
            let members = map.entries().iter().map(|(key, value)| {
                let key = match key {
                    Field::Str(text) => quoted(text),
                    other => quoted(&json_of(other)),
                };
                format!("{key}: {}", json_of(value))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

pub struct EvenkeelTable {
    file: SerializedFileReader<Source>,
    failed: Arc<AtomicBool>,
    /// The first row of each group, and the end.
    first_rows: Vec<u64>,
    /// Names of all columns in order.
    columns: Vec<String>,
    media: Vec<Media>,
    texts: Texts,
    // What the latest call has given out.
    text: String,
    names: Vec<String>,
    found: Vec<EvenkeelTableMedium>,
    value: ByteArray,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EvenkeelTableMedium {
    pub name: EvenkeelText,
    pub column: u32,
    pub element: u32,
    pub num_bytes: u64,
}

fn is_text(leaf: &Type) -> bool {
    let info = leaf.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::String | LogicalType::Json | LogicalType::Enum | LogicalType::Decimal { .. }))
        || matches!(info.converted_type(), ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM | ConvertedType::DECIMAL)
}

fn is_binary(field: &Type) -> bool {
    field.is_primitive() && field.get_physical_type() == PhysicalType::BYTE_ARRAY && !is_text(field)
}

fn is_repeated(field: &Type) -> bool {
    field.get_basic_info().has_repetition() && field.get_basic_info().repetition() == Repetition::REPEATED
}

/// The leaf at `path` of a column: its number and levels. `group`: how many components lead to the group around it.
fn leaf_at(schema: &SchemaDescriptor, path: &[String], group: usize) -> Option<Leaf> {
    let index = schema.columns().iter().position(|column| column.path().parts() == path)?;
    let mut field: &Type = schema.root_schema();
    let (mut def, mut element_def, mut group_def) = (0, 0, 0);
    for (i, name) in path.iter().enumerate() {
        field = field.get_fields().iter().find(|child| child.name() == name)?;
        if field.get_basic_info().repetition() != Repetition::REQUIRED {
            def += 1;
        }
        if is_repeated(field) {
            element_def = def;
        }
        if i + 1 == group {
            group_def = def;
        }
    }
    Some(Leaf { index, max_def: def, element_def, group_def, reader: None, kept: None, row: None, elements: Vec::new(), is_there: Vec::new() })
}

/// The column as one of media, if it is one.
fn media_of(schema: &SchemaDescriptor, column: &Type) -> Option<Media> {
    let mut path = vec![column.name().to_string()];
    let mut element = column;
    let is_list = !is_repeated(column) && column.is_group() && column.get_fields().len() == 1 && is_repeated(&column.get_fields()[0]);
    if is_list {
        let repeated = &column.get_fields()[0];
        path.push(repeated.name().to_string());
        if !repeated.is_group() || repeated.get_fields().len() != 1 {
            return None;
        }
        element = &repeated.get_fields()[0];
        path.push(element.name().to_string());
    }
    if is_repeated(element) {
        return None;
    }
    let group = path.len();
    let child = |name: &str| {
        let mut path = path.clone();
        path.push(name.to_string());
        leaf_at(schema, &path, group)
    };
    let (bytes, paths) = if is_binary(element) {
        // A null is an element that is not there.
        (leaf_at(schema, &path, group)?, None)
    } else if element.is_group() && element.get_fields().iter().any(|field| field.name() == "bytes" && is_binary(field)) {
        let has_path = element.get_fields().iter().any(|field| {
            field.name() == "path" && field.is_primitive() && field.get_physical_type() == PhysicalType::BYTE_ARRAY && !is_repeated(field)
        });
        (child("bytes")?, if has_path { child("path") } else { None })
    } else {
        return None;
    };
    Some(Media { name: column.name().to_string(), is_list, bytes, path: paths })
}

fn open(source: Source) -> Result<Box<EvenkeelTable>, ParquetError> {
    let failed = source.failed.clone();
    let file = SerializedFileReader::new(source)?;
    let metadata = file.metadata();
    let mut first_rows = vec![0];
    for group in metadata.row_groups() {
        let rows = u64::try_from(group.num_rows()).map_err(|_| ParquetError::General("a negative number of rows".into()))?;
        first_rows.push(first_rows.last().unwrap_or(&0) + rows);
    }
    let schema = metadata.file_metadata().schema_descr_ptr();
    let root = schema.root_schema();
    let media: Vec<Media> = root.get_fields().iter().filter_map(|column| media_of(&schema, column)).collect();
    let columns: Vec<String> = root.get_fields().iter().map(|column| column.name().to_string()).collect();
    let texts: Vec<_> = root.get_fields().iter().filter(|column| media.iter().all(|one| one.name != column.name())).cloned().collect();
    let schema = if texts.is_empty() {
        None
    } else {
        let projected = Type::group_type_builder(root.name()).with_fields(texts).build()?;
        Some(Arc::new(SchemaDescriptor::new(Arc::new(projected))))
    };
    let texts = Texts { schema, rows: None, kept: VecDeque::new(), kept_bytes: 0 };
    Ok(Box::new(EvenkeelTable {
        file,
        failed,
        first_rows,
        columns,
        media,
        texts,
        text: String::new(),
        names: Vec::new(),
        found: Vec::new(),
        value: ByteArray::new(),
    }))
}

impl EvenkeelTable {
    /// The row group of a row, and the row within it.
    fn place(&self, row: u64) -> Result<(usize, u64), ParquetError> {
        if row >= *self.first_rows.last().unwrap_or(&0) {
            return Err(ParquetError::General(format!("there is no row {row}")));
        }
        let group = self.first_rows.partition_point(|first| *first <= row) - 1;
        Ok((group, row - self.first_rows[group]))
    }

    fn read_text(&mut self, row: u64) -> Result<(), ParquetError> {
        let (group, in_group) = self.place(row)?;
        let mut members = self.texts.read(&self.file, row, group, in_group)?;
        for media in &mut self.media {
            media.naming().read(&self.file, row, group, in_group)?;
            let names: Vec<String> =
                media.names().into_iter().map(|name| name.map_or("null".to_string(), |name| quoted(&name))).collect();
            let json = match media.is_list {
                true => format!("[{}]", names.join(", ")),
                false => names.into_iter().next().unwrap_or("null".into()),
            };
            members.push((media.name.clone(), json));
        }
        let order = |name: &str| self.columns.iter().position(|column| column == name);
        members.sort_by_key(|(name, _)| order(name));
        let members: Vec<String> = members.iter().map(|(name, json)| format!("{}: {json}", quoted(name))).collect();
        self.text = format!("{{{}}}", members.join(", "));
        Ok(())
    }

    fn read_media(&mut self, row: u64) -> Result<(), ParquetError> {
        let (group, in_group) = self.place(row)?;
        self.names.clear();
        self.found.clear();
        for (column, media) in self.media.iter_mut().enumerate() {
            media.naming().read(&self.file, row, group, in_group)?;
            media.bytes.read(&self.file, row, group, in_group)?;
            for (element, name) in media.names().into_iter().enumerate() {
                let (Some(name), Some(Some(bytes))) = (name, media.bytes.elements.get(element)) else { continue };
                self.names.push(name);
                self.found.push(EvenkeelTableMedium {
                    name: EvenkeelText { bytes: std::ptr::null(), num_bytes: 0 },
                    column: column as u32,
                    element: element as u32,
                    num_bytes: bytes.len() as u64,
                });
            }
        }
        for (name, found) in self.names.iter().zip(&mut self.found) {
            found.name = EvenkeelText { bytes: name.as_ptr(), num_bytes: name.len() };
        }
        Ok(())
    }

    fn read_value(&mut self, row: u64, column: u32, element: u32) -> Result<(), ParquetError> {
        let (group, in_group) = self.place(row)?;
        let missing = || ParquetError::General(format!("row {row} has no element {element} in column {column} of media"));
        let media = self.media.get_mut(column as usize).ok_or_else(missing)?;
        media.bytes.read(&self.file, row, group, in_group)?;
        self.value = media.bytes.elements.get(element as usize).and_then(Clone::clone).ok_or_else(missing)?;
        Ok(())
    }
}

/// As `guarded` of lib.rs, with the code of a source that failed.
fn guarded(failed: &AtomicBool, body: impl FnOnce() -> Result<(), ParquetError>) -> i32 {
    failed.store(false, Ordering::Relaxed);
    let code = caught(|| body().map_err(|error| (REFUSED, error.to_string())));
    if code != OK && failed.load(Ordering::Relaxed) { SOURCE } else { code }
}

/// # Safety
/// `out` must be writable; `source` must be what `read_at` takes, until the table is freed.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_open(source: *mut c_void, read_at: ReadAt, num_bytes: u64, out: *mut *mut EvenkeelTable) -> i32 {
    *out = std::ptr::null_mut();
    let failed = Arc::new(AtomicBool::new(false));
    let source = Source { source, read_at, num_bytes, failed: failed.clone() };
    guarded(&failed, || {
        *out = Box::into_raw(open(source)?);
        Ok(())
    })
}

/// # Safety
/// `table` must come from `evenkeel_table_open`, and must not be used afterwards. Null is allowed.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_free(table: *mut EvenkeelTable) {
    free(table);
}

/// # Safety
/// `table` must come from `evenkeel_table_open`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_num_rows(table: *const EvenkeelTable) -> u64 {
    (*table).first_rows.last().copied().unwrap_or(0)
}

/// # Safety
/// `table` must come from `evenkeel_table_open`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_kept_bytes(table: *const EvenkeelTable) -> u64 {
    let table = &*table;
    let leaves = table.media.iter().flat_map(|media| std::iter::once(&media.bytes).chain(media.path.as_ref()));
    leaves.map(|leaf| leaf.kept_bytes(&table.file) as u64).sum::<u64>() + table.texts.kept_bytes as u64
}

/// # Safety
/// `table` must come from `evenkeel_table_open`, `first` and `end` must be writable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_group_of(table: *const EvenkeelTable, row: u64, first: *mut u64, end: *mut u64) {
    let table = &*table;
    let group = table.place(row).map(|(group, _)| (table.first_rows[group], table.first_rows[group + 1]));
    (*first, *end) = group.unwrap_or((row, row));
}

/// # Safety
/// `table` must come from `evenkeel_table_open`, `out` must be writable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_text(table: *mut EvenkeelTable, row: u64, out: *mut EvenkeelText) -> i32 {
    let table = &mut *table;
    let failed = table.failed.clone();
    guarded(&failed, || {
        table.read_text(row)?;
        *out = EvenkeelText { bytes: table.text.as_ptr(), num_bytes: table.text.len() };
        Ok(())
    })
}

/// # Safety
/// As `evenkeel_table_text`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_media(
    table: *mut EvenkeelTable,
    row: u64,
    out: *mut *const EvenkeelTableMedium,
    num_media: *mut usize,
) -> i32 {
    let table = &mut *table;
    let failed = table.failed.clone();
    guarded(&failed, || {
        table.read_media(row)?;
        *out = table.found.as_ptr();
        *num_media = table.found.len();
        Ok(())
    })
}

/// # Safety
/// As `evenkeel_table_text`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_table_value(table: *mut EvenkeelTable, row: u64, column: u32, element: u32, out: *mut EvenkeelText) -> i32 {
    let table = &mut *table;
    let failed = table.failed.clone();
    guarded(&failed, || {
        table.read_value(row, column, element)?;
        *out = EvenkeelText { bytes: table.value.data().as_ptr(), num_bytes: table.value.len() };
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn evenkeel_table_last_error() -> EvenkeelText {
    last_error()
}
