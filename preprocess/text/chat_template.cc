// Calls the template engine of rust/ and translates its codes to statuses.
#include "preprocess/text/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "preprocess/text/foreign_call.h"
#include "rust/template.h"

namespace evenkeel::preprocess {
namespace {

EvenkeelText TextOf(std::string_view text) {
  return EvenkeelText{reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::Status LastError(int32_t code) {
  const EvenkeelText text = evenkeel_template_last_error();
  const absl::string_view message(reinterpret_cast<const char*>(text.bytes), text.num_bytes);
  switch (code) {
    case EVENKEEL_TEMPLATE_RAISED:
      return absl::InvalidArgumentError(absl::StrCat("the chat template refuses the chat: ", message));
    case EVENKEEL_TEMPLATE_NO_DATE:
      return absl::FailedPreconditionError(
          "the chat template writes today's date, which would make the stream depend on the day; set "
          "processor.date of the job to the date that it should write, as YYYY-MM-DD");
    case EVENKEEL_TEMPLATE_LIMIT:
      return absl::ResourceExhaustedError(absl::StrCat("the chat template: ", message));
    case EVENKEEL_TEMPLATE_PANICKED:
      return absl::InvalidArgumentError(absl::StrCat("the template engine failed: ", message));
    default:
      return absl::InvalidArgumentError(absl::StrCat("the chat template: ", message));
  }
}

}  // namespace

void ChatTemplate::Free::operator()(EvenkeelTemplate* loaded) const {
  ForeignCall call;
  evenkeel_template_free(loaded);
}

void ChatTemplate::FreeChat::operator()(EvenkeelChat* chat) const {
  ForeignCall call;
  evenkeel_chat_free(chat);
}

ChatTemplate::ChatTemplate(std::unique_ptr<EvenkeelTemplate, Free> handle)
    : handle_(std::move(handle)), has_generation_(evenkeel_template_has_generation(handle_.get()) != 0) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(std::string_view source,
                                                                 const ChatTemplateSettings& settings) {
  std::vector<EvenkeelText> tokens;
  tokens.reserve(settings.special_tokens.size());
  for (const std::string& token : settings.special_tokens) tokens.push_back(TextOf(token));
  const EvenkeelTemplateLimits limits{settings.max_work, settings.max_string_bytes,
                                      settings.max_output_bytes};
  ForeignCall call;
  EvenkeelTemplate* loaded = nullptr;
  const int32_t code =
      evenkeel_template_load(TextOf(source), TextOf(settings.variables), TextOf(settings.date), tokens.data(),
                             tokens.size(), limits, &loaded);
  std::unique_ptr<EvenkeelTemplate, Free> handle(loaded);
  if (code != EVENKEEL_TEMPLATE_OK) return LastError(code);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(handle)));
}

absl::StatusOr<ChatTemplate::Chat> ChatTemplate::Parse(std::string_view json) const {
  ForeignCall call;
  EvenkeelChat* parsed = nullptr;
  const int32_t code = evenkeel_chat_parse(handle_.get(), TextOf(json), &parsed);
  Chat chat(parsed);
  if (code != EVENKEEL_TEMPLATE_OK) return LastError(code);
  return chat;
}

absl::Status ChatTemplate::Render(const EvenkeelChat& chat, size_t num_messages, bool add_generation_prompt,
                                  RenderedChat& out) const {
  ForeignCall call;
  EvenkeelRendered rendered{};
  const int32_t code =
      evenkeel_chat_render(handle_.get(), &chat, num_messages, add_generation_prompt ? 1 : 0, &rendered);
  if (code != EVENKEEL_TEMPLATE_OK) return LastError(code);
  out.text.assign(reinterpret_cast<const char*>(rendered.text.bytes), rendered.text.num_bytes);
  out.spelled.assign(rendered.spelled, rendered.spelled + rendered.num_spelled);
  out.generated.clear();
  for (size_t i = 0; i < rendered.num_generated; ++i)
    out.generated.push_back({rendered.generated[2 * i], rendered.generated[2 * i + 1]});
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
