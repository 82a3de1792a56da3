// Why a text is no message of a type, in the words of who wrote it: the place, what is wrong there, and for
// an unknown field the nearest known one. For texts that protobuf's own parser has refused.
//
// Not a parser of problems (messages.h), nor a judge of what a well-formed problem says (kinds.h).
//
// Thread safety: a pure function.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace evenkeel::reorder {

// "balance.phases[0]: unknown field 'nme'; nearest is 'name'". `root` is how the outermost message is called,
// empty for none. `refusal` is what the parser said: it stands where nothing is found, and for texts that are
// no JSON at all.
std::string Explain(const std::string& json, const google::protobuf::Descriptor& type,
                    const std::string& root, const std::string& refusal);

}  // namespace evenkeel::reorder
