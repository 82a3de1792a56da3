// Reads the boxes of a HEIF file that lead from its primary item to coded images: meta, pitm, iinf, iloc, iref, iprp
// and idat. Every other box is passed over.
#include "preprocess/image/heif_boxes.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::preprocess {
namespace {

using Bytes = std::span<const std::byte>;

// What one item may have, since many tiles can be the same item. libheif has the same limit of extents.
constexpr uint64_t kMaxExtents = 32;
constexpr uint64_t kMaxProperties = 64;

constexpr uint32_t Name(const char (&text)[5]) {
  uint32_t name = 0;
  for (int i = 0; i < 4; ++i) name = name << 8 | static_cast<uint8_t>(text[i]);
  return name;
}

std::string TextOf(uint32_t name) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const auto c = static_cast<char>(name >> shift & 255);
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text;
}

absl::Status Damaged(absl::string_view box, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("HEIF box '", box, "': ", what));
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("HEIF: ", what, "; supported are images of AV1 and HEVC and grids of them"));
}

// Reads big-endian numbers. Beyond the end it returns zeros and remembers that.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ >= bytes_.size(); }
  // `size` bytes, 0 to 8.
  uint64_t Number(size_t size) {
    const Bytes part = Take(size);
    uint64_t value = 0;
    for (std::byte b : part) value = value << 8 | std::to_integer<uint64_t>(b);
    return value;
  }
  uint32_t Number32() { return static_cast<uint32_t>(Number(4)); }
  uint16_t Number16() { return static_cast<uint16_t>(Number(2)); }
  uint8_t Number8() { return static_cast<uint8_t>(Number(1)); }
  Bytes Take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      ok_ = false;
      at_ = bytes_.size();
      return {};
    }
    const Bytes part = bytes_.subspan(at_, size);
    at_ += size;
    return part;
  }
  Bytes Rest() { return Take(bytes_.size() - at_); }

 private:
  Bytes bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

struct Box {
  uint32_t type = 0;
  Bytes body;
};

// The next box; nullopt: no whole one follows. A size of 0 reaches to the end.
std::optional<Box> NextBox(Reader& reader) {
  if (reader.AtEnd()) return std::nullopt;
  uint64_t size = reader.Number(4), head = 8;
  Box box{.type = reader.Number32()};
  if (size == 1) size = reader.Number(8), head = 16;
  if (!reader.ok()) return std::nullopt;
  if (size == 0) {
    box.body = reader.Rest();
    return box;
  }
  if (size < head) return std::nullopt;
  box.body = reader.Take(size - head);
  if (!reader.ok()) return std::nullopt;
  return box;
}

// A full box's version; its flags are passed over.
uint8_t VersionOf(Reader& reader) {
  const uint8_t version = reader.Number8();
  (void)reader.Take(3);
  return version;
}

// Values by the id of an item, sorted: the first of an id counts.
template <typename T>
class ById {
 public:
  void Add(uint32_t id, T value) { entries_.emplace_back(id, std::move(value)); }
  void Sort() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  const T* Find(uint32_t id) const {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), id,
                         [](const auto& entry, uint32_t wanted) { return entry.first < wanted; });
    return found != entries_.end() && found->first == id ? &found->second : nullptr;
  }
  const std::vector<std::pair<uint32_t, T>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<uint32_t, T>> entries_;
};

struct Reference {
  uint32_t type = 0;
  uint32_t from = 0;
  std::vector<uint32_t> to;
};

// Which property an item has: its number in `ipco`, from 1.
struct Association {
  uint16_t property = 0;
  bool essential = false;
};

// The boxes inside `meta`.
struct Meta {
  Bytes file;
  Bytes idat;
  uint32_t primary = 0;
  ById<uint32_t> types;
  // The sizes of numbers in `iloc`, and where the entry of an item begins.
  uint8_t iloc_version = 0, offset_size = 0, length_size = 0, base_size = 0, index_size = 0;
  ById<Bytes> places;
  std::vector<Reference> references;
  std::vector<Box> properties;
  ById<Association> associations;
};

absl::Status ReadTypes(Bytes body, Meta* meta) {
  Reader reader(body);
  const size_t count_size = VersionOf(reader) == 0 ? 2 : 4;
  (void)reader.Number(count_size);
  while (const std::optional<Box> box = NextBox(reader)) {
    if (box->type != Name("infe")) continue;
    Reader entry(box->body);
    const uint8_t version = VersionOf(entry);
    if (version < 2) continue;  // items without a type are no images
    const auto id = static_cast<uint32_t>(entry.Number(version == 2 ? 2 : 4));
    (void)entry.Number16();
    const uint32_t type = entry.Number32();
    if (!entry.ok()) return Damaged("infe", "it ends early");
    meta->types.Add(id, type);
  }
  meta->types.Sort();
  return absl::OkStatus();
}

// Entries are kept as bytes, since the numbers of an item's extents may be as long as the file.
absl::Status ReadPlaces(Bytes body, Meta* meta) {
  Reader reader(body);
  meta->iloc_version = VersionOf(reader);
  if (meta->iloc_version > 2) return Damaged("iloc", absl::StrCat("version ", meta->iloc_version));
  const uint8_t sizes = reader.Number8(), more = reader.Number8();
  meta->offset_size = sizes >> 4, meta->length_size = sizes & 15, meta->base_size = more >> 4;
  meta->index_size = meta->iloc_version == 0 ? 0 : more & 15;
  for (uint8_t size : {meta->offset_size, meta->length_size, meta->base_size, meta->index_size}) {
    if (size != 0 && size != 4 && size != 8)
      return Damaged("iloc", absl::StrCat("numbers of ", size, " bytes; expected 0, 4 or 8"));
  }
  const size_t id_size = meta->iloc_version < 2 ? 2 : 4;
  const uint64_t count = reader.Number(id_size);
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const auto id = static_cast<uint32_t>(reader.Number(id_size));
    Reader ahead = reader;
    (void)reader.Take(meta->iloc_version == 0 ? 2 : 4);
    (void)reader.Take(meta->base_size);
    const uint64_t extents = reader.Number16();
    (void)reader.Take(extents * (uint64_t{meta->index_size} + meta->offset_size + meta->length_size));
    if (reader.ok()) meta->places.Add(id, ahead.Rest());
  }
  if (!reader.ok()) return Damaged("iloc", "it ends before its last item");
  meta->places.Sort();
  return absl::OkStatus();
}

absl::Status ReadReferences(Bytes body, Meta* meta) {
  Reader reader(body);
  const size_t id_size = VersionOf(reader) == 0 ? 2 : 4;
  while (const std::optional<Box> box = NextBox(reader)) {
    Reader entry(box->body);
    Reference reference{.type = box->type, .from = static_cast<uint32_t>(entry.Number(id_size))};
    const uint64_t count = entry.Number16();
    for (uint64_t i = 0; i < count && entry.ok(); ++i)
      reference.to.push_back(static_cast<uint32_t>(entry.Number(id_size)));
    if (!entry.ok()) return Damaged("iref", "a list of items ends early");
    meta->references.push_back(std::move(reference));
  }
  return absl::OkStatus();
}

absl::Status ReadAssociations(Bytes body, Meta* meta) {
  Reader reader(body);
  const uint64_t head = reader.Number32();
  const bool wide = (head & 1) != 0;
  const size_t id_size = head >> 24 == 0 ? 2 : 4;
  const uint64_t count = reader.Number32();
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const auto id = static_cast<uint32_t>(reader.Number(id_size));
    const uint8_t properties = reader.Number8();
    for (uint8_t k = 0; k < properties && reader.ok(); ++k) {
      const uint16_t word = wide ? reader.Number16() : reader.Number8();
      const auto essential = static_cast<uint16_t>(wide ? 0x8000 : 0x80);
      meta->associations.Add(id, {static_cast<uint16_t>(word & (essential - 1)), (word & essential) != 0});
    }
  }
  return reader.ok() ? absl::OkStatus() : Damaged("ipma", "it ends before its last item");
}

absl::Status ReadProperties(Bytes body, Meta* meta) {
  Reader reader(body);
  while (const std::optional<Box> box = NextBox(reader)) {
    if (box->type == Name("ipco")) {
      Reader inside(box->body);
      while (const std::optional<Box> property = NextBox(inside)) meta->properties.push_back(*property);
    }
    if (box->type == Name("ipma")) EVENKEEL_RETURN_IF_ERROR(ReadAssociations(box->body, meta));
  }
  meta->associations.Sort();
  return absl::OkStatus();
}

absl::StatusOr<Meta> ReadMeta(Bytes file) {
  Reader reader(file);
  std::optional<Bytes> found;
  while (const std::optional<Box> box = NextBox(reader)) {
    if (box->type == Name("meta") && !found) found = box->body;
  }
  if (!found)
    return Damaged("meta", absl::StrCat("a file of ", file.size(),
                                        " bytes has no whole one; a sequence "
                                        "without a still picture is not supported"));
  Meta meta{.file = file};
  Reader inside(*found);
  (void)VersionOf(inside);
  while (const std::optional<Box> box = NextBox(inside)) {
    absl::Status status;
    if (box->type == Name("pitm")) {
      Reader entry(box->body);
      const size_t id_size = VersionOf(entry) == 0 ? 2 : 4;
      meta.primary = static_cast<uint32_t>(entry.Number(id_size));
      if (!entry.ok()) status = Damaged("pitm", "it ends early");
    }
    if (box->type == Name("iinf")) status = ReadTypes(box->body, &meta);
    if (box->type == Name("iloc")) status = ReadPlaces(box->body, &meta);
    if (box->type == Name("iref")) status = ReadReferences(box->body, &meta);
    if (box->type == Name("iprp")) status = ReadProperties(box->body, &meta);
    if (box->type == Name("idat")) meta.idat = box->body;
    EVENKEEL_RETURN_IF_ERROR(status);
  }
  if (meta.primary == 0) return Damaged("pitm", "there is no primary item");
  return meta;
}

// The bytes of an item. All together are no more than the file has, so that overlapping ones cannot add up.
absl::StatusOr<std::vector<Bytes>> ExtentsOf(const Meta& meta, uint32_t id) {
  const Bytes* const place = meta.places.Find(id);
  if (place == nullptr) return Damaged("iloc", absl::StrCat("item ", id, " has no place"));
  Reader reader(*place);
  const uint64_t method = meta.iloc_version == 0 ? 0 : reader.Number16() & 15;
  const uint64_t data_reference = reader.Number16();
  const uint64_t base = reader.Number(meta.base_size);
  const uint64_t count = reader.Number16();
  if (method > 1 || data_reference != 0)
    return Unsupported(absl::StrCat("item ", id, " lies in other items or files"));
  if (count > kMaxExtents)
    return Damaged(
        "iloc", absl::StrCat("item ", id, " is in ", count, " pieces; at most ", kMaxExtents, " are read"));
  const Bytes source = method == 0 ? meta.file : meta.idat;
  std::vector<Bytes> extents;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    (void)reader.Number(meta.index_size);
    const uint64_t offset = reader.Number(meta.offset_size);
    uint64_t length = reader.Number(meta.length_size);
    if (base > source.size() || offset > source.size() - base)
      return Damaged("iloc",
                     absl::StrCat("item ", id, " begins beyond the file's ", meta.file.size(), " bytes"));
    const uint64_t left = source.size() - base - offset;
    if (length == 0) length = left;
    if (length > left || total + length > source.size()) {
      return Damaged(
          "iloc", absl::StrCat("item ", id, " has more bytes than the file, which has ", meta.file.size()));
    }
    total += length;
    extents.push_back(source.subspan(base + offset, length));
  }
  if (total == 0) return Damaged("iloc", absl::StrCat("item ", id, " has no bytes"));
  return extents;
}

// The properties of an item that matter here.
struct Properties {
  std::optional<ImageSize> size;
  std::optional<Bytes> av1, hevc;
  std::optional<CodedColours> colours;
  std::string_view auxiliary;  // the type of an auxiliary image
  ImageSize now;               // the size after the changes so far
  HeifPlacement placement;
};

// A number of quarter turns against the clock, and whether the result is mirrored from left to right, together.
struct Turns {
  uint32_t quarters = 0;
  bool mirrored = false;
  void Turn(uint32_t angle) { quarters = (quarters + (mirrored ? 4 - angle : angle)) % 4; }
  void Mirror(bool left_to_right) {
    // Top to bottom is left to right of the picture turned by half.
    if (!left_to_right) Turn(2);
    mirrored = !mirrored;
  }
  uint32_t orientation() const {
    constexpr uint32_t kOrientations[2][4] = {{1, 8, 3, 6}, {2, 7, 4, 5}};
    return kOrientations[mirrored ? 1 : 0][quarters];
  }
};

// Turns a picture by quarters against the clock.
void Turn(uint32_t angle, Turns* turns, Properties* out) {
  const bool odd_width = out->now.width % 2 != 0, odd_height = out->now.height % 2 != 0;
  HeifPlacement& placement = out->placement;
  if (angle == 1) placement.shifts_420 |= odd_width;
  if (angle == 2) placement.shifts_420 |= odd_width || odd_height;
  if (angle == 3) placement.shifts_420 |= odd_height;
  placement.shifts_422 |= angle % 2 == 1 || (angle == 2 && odd_height);
  if (angle % 2 == 1) std::swap(out->now.width, out->now.height);
  turns->Turn(angle);
}

void Mirror(bool left_to_right, Turns* turns, Properties* out) {
  const bool odd_width = out->now.width % 2 != 0, odd_height = out->now.height % 2 != 0;
  out->placement.shifts_420 |= odd_width || odd_height;
  out->placement.shifts_422 |= left_to_right && odd_width;
  turns->Mirror(left_to_right);
}

// A fraction of `clap`.
struct Fraction {
  int64_t numerator = 0;
  int64_t denominator = 1;
};

// The first pixel of a clean aperture along one side: (side - 1) / 2 + offset - (length - 1) / 2, rounded as libheif
// does, down for the left side and to nearest for the top.
int64_t FirstOf(uint32_t side, const Fraction& offset, int64_t length, bool nearest) {
  const int64_t numerator = 2 * offset.numerator + offset.denominator * (static_cast<int64_t>(side) - length);
  const int64_t denominator = 2 * offset.denominator;
  return (numerator + (nearest ? denominator / 2 : 0)) / denominator;
}

absl::Status ReadAperture(Bytes body, Properties* out) {
  Reader reader(body);
  Fraction values[4];
  for (Fraction& value : values) {
    value.numerator = static_cast<int32_t>(reader.Number32());
    value.denominator = static_cast<int32_t>(reader.Number32());
  }
  if (!reader.ok() || !out->size) return Damaged("clap", "it ends early or comes before the size");
  for (const Fraction& value : values) {
    if (value.denominator <= 0) return Damaged("clap", "a fraction has no denominator");
  }
  const ImageSize size = *out->size;
  const int64_t width = values[0].numerator / values[0].denominator,
                height = values[1].numerator / values[1].denominator;
  if (width * values[0].denominator != values[0].numerator ||
      height * values[1].denominator != values[1].numerator)
    return Unsupported("a clean aperture of a fraction of a pixel");
  const int64_t left = FirstOf(size.width, values[2], width, false);
  const int64_t top = FirstOf(size.height, values[3], height, true);
  if (width <= 0 || height <= 0 || left < 0 || top < 0 || left + width > size.width ||
      top + height > size.height)
    return Damaged("clap", "the clean aperture is not inside the picture");
  HeifPlacement& placement = out->placement;
  placement.left = static_cast<uint32_t>(left), placement.top = static_cast<uint32_t>(top);
  placement.cut = {static_cast<uint32_t>(width), static_cast<uint32_t>(height)};
  placement.is_cut = true;
  placement.shifts_422 |= left % 2 != 0;
  placement.shifts_420 |= left % 2 != 0 || top % 2 != 0;
  out->now = placement.cut;
  return absl::OkStatus();
}

absl::Status ReadColours(Bytes body, Properties* out) {
  Reader reader(body);
  const uint32_t type = reader.Number32();
  if (type != Name("nclx")) return absl::OkStatus();  // ICC profiles are not applied
  CodedColours colours;
  colours.primaries = reader.Number16();
  (void)reader.Number16();
  colours.matrix = reader.Number16();
  colours.full_range = (reader.Number8() & 0x80) != 0;
  if (!reader.ok()) return Damaged("colr", "it ends early");
  if (!out->colours) out->colours = colours;
  return absl::OkStatus();
}

// Properties that do not change the decoded pixels may be ignored; of others an essential one may not.
absl::Status ReadProperty(const Box& box, bool essential, Turns* turns, Properties* out) {
  Reader reader(box.body);
  switch (box.type) {
    case Name("ispe"): {
      (void)VersionOf(reader);
      const uint32_t width = reader.Number32(), height = reader.Number32();
      if (!reader.ok()) return Damaged("ispe", "it ends early");
      if (!out->size) out->size = out->now = ImageSize{width, height};
      return absl::OkStatus();
    }
    case Name("av1C"):
      out->av1 = box.body;
      return absl::OkStatus();
    case Name("hvcC"):
      out->hevc = box.body;
      return absl::OkStatus();
    case Name("colr"):
      return ReadColours(box.body, out);
    case Name("auxC"):
      (void)VersionOf(reader);
      out->auxiliary = {reinterpret_cast<const char*>(box.body.data()) + std::min<size_t>(4, box.body.size()),
                        box.body.size() - std::min<size_t>(4, box.body.size())};
      return absl::OkStatus();
    case Name("irot"):
      Turn(reader.Number8() & 3, turns, out);
      return reader.ok() ? absl::OkStatus() : Damaged("irot", "it is empty");
    case Name("imir"):
      Mirror((reader.Number8() & 1) != 0, turns, out);
      return reader.ok() ? absl::OkStatus() : Damaged("imir", "it is empty");
    case Name("clap"):
      if (turns->orientation() != 1 || out->placement.is_cut)
        return Unsupported("a clean aperture of a picture that was cut or turned before");
      return ReadAperture(box.body, out);
    case Name("pixi"):
    case Name("pasp"):
    case Name("clli"):
    case Name("mdcv"):
    case Name("cclv"):
      return absl::OkStatus();
    default:
      if (!essential) return absl::OkStatus();
      return Unsupported(absl::StrCat("the essential property '", TextOf(box.type), "'"));
  }
}

absl::StatusOr<Properties> PropertiesOf(const Meta& meta, uint32_t id) {
  Properties out;
  Turns turns;
  const auto& entries = meta.associations.entries();
  auto entry = std::lower_bound(entries.begin(), entries.end(), id,
                                [](const auto& one, uint32_t wanted) { return one.first < wanted; });
  for (uint64_t count = 0; entry != entries.end() && entry->first == id; ++entry) {
    const auto& [property, essential] = entry->second;
    if (++count > kMaxProperties)
      return Damaged("ipma", absl::StrCat("item ", id, " has more than ", kMaxProperties, " properties"));
    if (property == 0) continue;
    if (property > meta.properties.size())
      return Damaged("ipma",
                     absl::StrCat("item ", id, " has property ", property, " of ", meta.properties.size()));
    EVENKEEL_RETURN_IF_ERROR(ReadProperty(meta.properties[property - 1], essential, &turns, &out));
  }
  if (!out.size) return Damaged("ispe", absl::StrCat("item ", id, " has no size"));
  if (!out.placement.is_cut) out.placement.cut = *out.size;
  out.placement.orientation = turns.orientation();
  return out;
}

absl::StatusOr<HeifTile> TileOf(const Meta& meta, uint32_t id, const Properties& properties,
                                HeifCodec codec) {
  HeifTile tile;
  const std::optional<Bytes>& configuration = codec == HeifCodec::kAv1 ? properties.av1 : properties.hevc;
  if (!configuration)
    return Damaged(codec == HeifCodec::kAv1 ? "av1C" : "hvcC", absl::StrCat("item ", id, " has none"));
  tile.configuration = *configuration;
  EVENKEEL_ASSIGN_OR_RETURN(tile.extents, ExtentsOf(meta, id));
  return tile;
}

absl::StatusOr<HeifCodec> CodecOf(const Meta& meta, uint32_t id) {
  const uint32_t* const type = meta.types.Find(id);
  if (type == nullptr) return Damaged("iinf", absl::StrCat("item ", id, " is not in it"));
  if (*type == Name("av01")) return HeifCodec::kAv1;
  if (*type == Name("hvc1")) return HeifCodec::kHevc;
  return Unsupported(absl::StrCat("an item of type '", TextOf(*type), "'"));
}

// The head of a grid: its rows, columns and size.
absl::Status ReadGrid(const Meta& meta, uint32_t id, HeifPicture* out) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Bytes> extents, ExtentsOf(meta, id));
  Reader reader(extents[0]);
  (void)reader.Number8();
  const size_t side_size = (reader.Number8() & 1) != 0 ? 4 : 2;
  out->rows = reader.Number8() + 1u, out->columns = reader.Number8() + 1u;
  out->size.width = static_cast<uint32_t>(reader.Number(side_size));
  out->size.height = static_cast<uint32_t>(reader.Number(side_size));
  return reader.ok() ? absl::OkStatus() : Damaged("grid", "it ends early");
}

// Tiles cover the picture, and only the last ones reach beyond it. So all their pixels together are less than four
// times those of the picture, plus a tile's.
absl::Status CheckGrid(const HeifPicture& picture) {
  constexpr uint32_t kLeastSide = 64;  // ISO/IEC 23000-22, 7.3.11.4.2
  const auto covers = [](uint64_t side, uint64_t tile, uint64_t count) {
    return tile * count >= side && tile * (count - 1) < side;
  };
  if (covers(picture.size.width, picture.tile.width, picture.columns) &&
      covers(picture.size.height, picture.tile.height, picture.rows) &&
      std::min(picture.tile.width, picture.tile.height) >= kLeastSide)
    return absl::OkStatus();
  return Damaged("grid", absl::StrCat(picture.columns, "x", picture.rows, " tiles of ", picture.tile.width,
                                      "x", picture.tile.height, " pixels do not make ", picture.size.width,
                                      "x", picture.size.height, "; tiles have 64 pixels a side or more"));
}

bool IsAlpha(std::string_view auxiliary) {
  auxiliary = auxiliary.substr(0, auxiliary.find('\0'));
  return auxiliary == "urn:mpeg:mpegB:cicp:systems:auxiliary:alpha" ||
         auxiliary == "urn:mpeg:hevc:2015:auxid:1";
}

// libavif joins alphas of tiles to one of the grid.
absl::Status CheckNoAlphaOfTiles(const Meta& meta, std::vector<uint32_t> tiles) {
  std::sort(tiles.begin(), tiles.end());
  for (const Reference& reference : meta.references) {
    if (reference.type != Name("auxl") || reference.to.empty() ||
        !std::binary_search(tiles.begin(), tiles.end(), reference.to[0]))
      continue;
    EVENKEEL_ASSIGN_OR_RETURN(const Properties auxiliary, PropertiesOf(meta, reference.from));
    if (IsAlpha(auxiliary.auxiliary)) return Unsupported("a grid whose tiles have an alpha each");
  }
  return absl::OkStatus();
}

absl::Status ReadTiles(const Meta& meta, uint32_t id, HeifPicture* out) {
  const std::vector<uint32_t>* ids = nullptr;
  for (const Reference& reference : meta.references) {
    if (reference.type == Name("dimg") && reference.from == id) ids = &reference.to;
  }
  const uint64_t count = uint64_t{out->rows} * out->columns;
  if (ids == nullptr || ids->size() != count)
    return Damaged("iref",
                   absl::StrCat("a grid has ", ids == nullptr ? 0 : ids->size(), " tiles; expected ", count));
  EVENKEEL_RETURN_IF_ERROR(CheckNoAlphaOfTiles(meta, *ids));
  for (uint32_t tile : *ids) {
    EVENKEEL_ASSIGN_OR_RETURN(const HeifCodec codec, CodecOf(meta, tile));
    EVENKEEL_ASSIGN_OR_RETURN(const Properties properties, PropertiesOf(meta, tile));
    if (out->tiles.empty()) {
      out->codec = codec, out->tile = *properties.size;
      // libheif looks for colours at the first tile, too; libavif does not.
      if (codec == HeifCodec::kHevc && !out->colours) out->colours = properties.colours;
      EVENKEEL_RETURN_IF_ERROR(CheckGrid(*out));
    }
    if (codec != out->codec || *properties.size != out->tile)
      return Damaged("grid", absl::StrCat("tile ", out->tiles.size(), " differs from the first"));
    if (properties.placement.is_cut || properties.placement.orientation != 1)
      return Unsupported("a grid of tiles that are cut or turned");
    EVENKEEL_ASSIGN_OR_RETURN(HeifTile made, TileOf(meta, tile, properties, codec));
    out->tiles.push_back(std::move(made));
  }
  return absl::OkStatus();
}

absl::StatusOr<HeifPicture> PictureOf(const Meta& meta, uint32_t id, const Properties& properties) {
  HeifPicture out;
  out.colours = properties.colours;
  const uint32_t* const type = meta.types.Find(id);
  if (type != nullptr && *type == Name("grid")) {
    EVENKEEL_RETURN_IF_ERROR(ReadGrid(meta, id, &out));
    if (out.size != *properties.size)
      return Damaged("grid", absl::StrCat("item ", id, " has another size than its property"));
    EVENKEEL_RETURN_IF_ERROR(ReadTiles(meta, id, &out));
    return out;
  }
  EVENKEEL_ASSIGN_OR_RETURN(out.codec, CodecOf(meta, id));
  out.size = out.tile = *properties.size;
  EVENKEEL_ASSIGN_OR_RETURN(HeifTile tile, TileOf(meta, id, properties, out.codec));
  out.tiles.push_back(std::move(tile));
  return out;
}

bool Refers(const Reference& reference, uint32_t type, uint32_t to) {
  return reference.type == type &&
         std::find(reference.to.begin(), reference.to.end(), to) != reference.to.end();
}

}  // namespace

bool HasHeifMagic(Bytes bytes) {
  if (bytes.size() < 12 || std::memcmp(bytes.data() + 4, "ftyp", 4) != 0) return false;
  for (const char* brand : {"avif", "avis", "mif1", "msf1", "heic", "heix", "heim", "heis", "hevc", "hevx"}) {
    if (std::memcmp(bytes.data() + 8, brand, 4) == 0) return true;
  }
  return false;
}

absl::StatusOr<HeifFile> ReadHeif(Bytes bytes) {
  EVENKEEL_ASSIGN_OR_RETURN(const Meta meta, ReadMeta(bytes));
  EVENKEEL_ASSIGN_OR_RETURN(const Properties properties, PropertiesOf(meta, meta.primary));
  HeifFile file;
  file.placement = properties.placement;
  EVENKEEL_ASSIGN_OR_RETURN(file.picture, PictureOf(meta, meta.primary, properties));
  for (const Reference& reference : meta.references) {
    if (file.alpha || !Refers(reference, Name("auxl"), meta.primary)) continue;
    EVENKEEL_ASSIGN_OR_RETURN(const Properties auxiliary, PropertiesOf(meta, reference.from));
    if (!IsAlpha(auxiliary.auxiliary)) continue;
    EVENKEEL_ASSIGN_OR_RETURN(file.alpha, PictureOf(meta, reference.from, auxiliary));
    file.alpha_placement = auxiliary.placement;
    for (const Reference& other : meta.references) {
      if (other.from == meta.primary && Refers(other, Name("prem"), reference.from))
        file.premultiplied = true;
    }
  }
  return file;
}

}  // namespace evenkeel::preprocess
