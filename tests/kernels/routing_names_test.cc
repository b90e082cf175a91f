// Routes the real parameter names of the most used model families: embeddings and outputs to the
// scalar group, hidden matrices to the matrix group.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/routing.h"

namespace kaon::kernels {
namespace {

struct Family {
  const char* name;
  std::vector<const char*> embeddings_and_outputs;
  std::vector<const char*> hidden;
};

const Family kFamilies[] = {
    {"Llama, Mistral, Qwen, Gemma, Phi-3, OLMo 2 (Hugging Face)",
     {"model.embed_tokens.weight", "lm_head.weight", "model.embed_tokens_per_layer.weight"},
     {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight",
      "model.layers.0.mlp.gate_proj.weight", "model.layers.31.mlp.down_proj.weight"}},
    {"Llama (Meta, torchtitan, torchtune), InternLM 2",
     {"tok_embeddings.weight", "output.weight", "module.output.weight",
      "model.tok_embeddings.weight", "language_model.output.weight"},
     {"layers.0.attention.wo.weight", "layers.0.feed_forward.w2.weight",
      "layers.0.attention.output.weight"}},
    {"Llama and others (llama.cpp)",
     {"token_embd.weight", "position_embd.weight", "token_types.weight", "output.weight"},
     {"blk.0.attn_output.weight", "blk.0.ffn_up_shexp.weight", "blk.0.ffn_down.weight"}},
    {"GPT-2, GPT-J, Falcon, MPT, BLOOM",
     {"transformer.wte.weight", "transformer.wpe.weight", "transformer.word_embeddings.weight",
      "lm_head.weight", "word_embeddings.weight"},
     {"transformer.h.0.attn.c_attn.weight", "transformer.h.0.mlp.c_proj.weight",
      "transformer.h.0.self_attention.query_key_value.weight"}},
    {"GPT-1, OPT, minGPT",
     {"transformer.tokens_embed.weight", "model.decoder.embed_positions.weight", "tok_emb.weight",
      "pos_emb.weight"},
     {"model.decoder.layers.0.fc1.weight", "blocks.0.attn.proj.weight"}},
    {"GPT-NeoX, Pythia",
     {"gpt_neox.embed_in.weight", "embed_out.weight", "33.final_linear.weight"},
     {"gpt_neox.layers.0.attention.query_key_value.weight",
      "gpt_neox.layers.0.mlp.dense_h_to_4h.weight"}},
    {"Megatron, ChatGLM",
     {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
      "output_layer.weight", "module.output_layer.weight", "transformer.output_layer.weight",
      "language_model.output_layer.weight"},
     {"decoder.layers.0.self_attention.linear_qkv.weight",
      "decoder.layers.0.mlp.shared_experts.linear_fc1.weight", "decoder.layers.0.mlp.router.weight",
      "encoder.layers.0.output_layer.weight"}},
    {"DeepSeek, Qwen MoE, gpt-oss",
     {"embed.weight", "head.weight", "model.layers.61.shared_head.head.weight",
      "unembedding.weight", "model.layers.61.embed_tokens.weight"},
     {"model.layers.0.mlp.shared_expert.up_proj.weight",
      "model.layers.3.mlp.shared_experts.gate_proj.weight", "layers.3.ffn.shared_experts.w1.weight",
      "model.layers.0.mlp.shared_expert_gate.weight", "model.layers.3.mlp.experts.7.up_proj.weight",
      "shared_expert.up_proj.weight", "shared.up_proj.weight", "layers.3.moe.shared.weight",
      "model.layers.61.eh_proj.weight", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"}},
    {"OLMo",
     {"model.transformer.wte.weight", "model.transformer.ff_out.weight"},
     {"model.transformer.blocks.0.ff_out.weight", "model.transformer.blocks.0.att_proj.weight"}},
    {"T5, BART, Pegasus, mBART, NLLB",
     {"shared.weight", "model.shared.weight", "encoder.embed_tokens.weight", "lm_head.weight",
      "model.decoder.embed_positions.weight",
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
     {"encoder.block.0.layer.0.SelfAttention.q.weight",
      "decoder.block.0.layer.2.DenseReluDense.wi_0.weight", "model.encoder.layers.0.fc1.weight"}},
    {"BERT, RoBERTa, DistilBERT, ELECTRA, XLNet",
     {"bert.embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight",
      "cls.predictions.decoder.weight", "lm_head.decoder.weight", "vocab_projector.weight",
      "generator_lm_head.weight", "transformer.word_embedding.weight", "classifier.weight",
      "score.weight"},
     {"bert.encoder.layer.0.attention.output.dense.weight",
      "bert.encoder.layer.0.output.dense.weight", "bert.pooler.dense.weight",
      "cls.predictions.transform.dense.weight"}},
    {"Mamba",
     {"backbone.embedding.weight", "backbone.embeddings.weight", "lm_head.weight"},
     {"backbone.layers.0.mixer.in_proj.weight", "backbone.layers.0.mixer.x_proj.weight"}},
    {"RWKV",
     {"emb.weight", "head.weight", "rwkv.embeddings.weight"},
     {"blocks.0.att.output.weight", "blocks.0.ffn.receptance.weight",
      "rwkv.blocks.0.attention.output.weight"}},
    {"Whisper, CLIP",
     {"model.decoder.embed_tokens.weight", "proj_out.weight", "token_embedding.weight",
      "text_model.embeddings.position_embedding.weight"},
     {"model.encoder.layers.0.self_attn.out_proj.weight", "text_projection", "visual.proj",
      "transformer.resblocks.0.mlp.c_fc.weight"}},
    {"ViT, DeiT, ConvNeXt, Swin, ResNet (timm, torchvision)",
     {"pos_embed", "head.weight", "head.fc.weight", "fc.weight", "heads.head.weight",
      "head_dist.weight", "classifier.weight"},
     {"blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "stages.2.blocks.0.mlp.fc2.weight",
      "layers.0.downsample.reduction.weight", "encoder.layers.encoder_layer_0.mlp.0.weight"}},
    {"DiT, Flux (diffusers)",
     {"pos_embed.proj.weight", "y_embedder.embedding_table.weight", "proj_out.weight"},
     {"transformer_blocks.0.attn.to_out.0.weight", "transformer_blocks.0.proj_out.weight",
      "single_transformer_blocks.0.proj_out.weight", "blocks.0.attn.proj.weight"}},
    {"nanochat, modded-nanogpt, TransformerLens",
     {"value_embeds.0.weight", "unembed.W_U", "embed.W_E", "lm_head.weight"},
     {"blocks.0.attn.W_O", "blocks.0.mlp.W_in", "_orig_mod.blocks.0.mlp.c_fc.weight"}},
    {"GPT-2, BERT, T5 (Flax)",
     {"params/wte/embedding", "params/lm_head/kernel", "params/transformer/wte/embedding",
      "params/shared/embedding", "params/bert/embeddings/word_embeddings/embedding"},
     {"params/transformer/h/0/attn/c_attn/kernel",
      "params/bert/encoder/layer/0/output/dense/kernel",
      "params/encoderblock_0/MlpBlock_0/Dense_0/kernel"}},
    {"MaxText, T5X, Gemma, Haiku (JAX)",
     {"params/token_embedder/embedding", "params-token_embedder-embedding",
      "params/decoder/logits_dense/kernel", "params-decoder-logits_dense-kernel",
      "embedder/input_embedding", "decoder/relpos_bias/rel_embedding", "transformer/~/embed/w",
      "head/kernel"},
     {"params/decoder/layers_0/mlp/wi_0/kernel",
      "params-decoder-layers_0-self_attention-out-kernel",
      "params/decoder/layers_0/mlp/shared_experts/wi_0/kernel", "transformer/layer_0/output/kernel",
      "layers_0/moe/shared/kernel"}},
    {"Keras, TensorFlow",
     {"token_embedding/embeddings:0", "tf_bert/bert/embeddings/word_embeddings/weight:0",
      "predictions/kernel:0"},
     {"bert/encoder/layer_._0/attention/output/dense/kernel:0",
      "transformer_layer_0/feedforward_output_dense/kernel:0"}},
    {"names that only look like one",
     {},
     {"mlp.embedded_gate", "film_head.weight", "newpe.weight", "wte2.weight", "fc1.weight",
      "output_gate.weight", "head_dim_proj.weight", "multihead.weight", "classifier_free.weight",
      "member.weight", "reshared.weight"}},
};

std::string GroupOf(const char* name, const std::vector<uint64_t>& shape = {4, 4}) {
  RoutingInput parameter;
  parameter.name = name;
  parameter.shape = shape;
  parameter.has_layout = shape.size() > 2;
  const absl::StatusOr<Route> route = RouteParameter(parameter, {"hidden", "rest"});
  return route.ok() ? route->group : route.status().ToString();
}

// [routing 5], edge 38.
TEST(RoutingNamesTest, EmbeddingsAndOutputsAreTheScalarGroupsAndHiddenMatricesAreNot) {
  for (const Family& family : kFamilies) {
    for (const char* name : family.embeddings_and_outputs) {
      EXPECT_EQ(GroupOf(name), "rest") << family.name << ": " << name;
    }
    for (const char* name : family.hidden) {
      EXPECT_EQ(GroupOf(name), "hidden") << family.name << ": " << name;
    }
  }
}

// Experts and layers that JAX stacks in one tensor are hidden, whatever their module's name is. The
// learned tokens of a vision model have more than two dimensions and are no matrices.
TEST(RoutingNamesTest, MoreThanTwoDimensions) {
  EXPECT_EQ(GroupOf("params/layers/attention/output/kernel", {12, 4, 4}), "hidden");
  for (const char* name : {"cls_token", "pos_embed", "patch_embed.proj.weight"}) {
    EXPECT_EQ(GroupOf(name, {1, 5, 4}), "rest") << name;
  }
}

}  // namespace
}  // namespace kaon::kernels
