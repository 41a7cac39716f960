# Read by another script: nothing but a variable.
TP=${TP:-2}
MODEL_OPTIONS=" \
  --num-layers 36 --hidden-size 4096 --ffn-hidden-size 12288 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --kv-channels 128 --qk-layernorm --swiglu --disable-bias-linear \
  --untie-embeddings-and-output-weights --normalization RMSNorm \
  --position-embedding-type rope --seq-length 4096 \
  --max-position-embeddings 40960 --padded-vocab-size 151936 --bf16 \
  --tensor-model-parallel-size ${TP} --micro-batch-size 1 \
  --attention-dropout 0 --hidden-dropout 0"
